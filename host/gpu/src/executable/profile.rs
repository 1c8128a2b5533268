//! Profiling: the time of each kernel of one dispatch. Each kernel gets its own pass with device timestamps before and
//! after it. Separate passes keep kernels from overlapping, so the sum can exceed the time of a normal dispatch.

use std::time::Duration;

use super::{DispatchTensors, GpuExecutable};
use crate::context::GpuContext;
use crate::gpu_timer::ticks_to_duration;
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::meter::DeviceCounters;

/// Kernels whose timestamps fit into one query set.
const KERNELS_PER_QUERY_SET: usize = (wgpu::QUERY_SET_MAX_QUERIES / 2) as usize;
/// Bytes of a kernel's two timestamps.
const TIMESTAMP_PAIR_BYTES: u64 = 16;

/// The timestamp queries and buffers of one dispatch.
struct DispatchTimestamps {
    query_sets: Vec<wgpu::QuerySet>,
    count: usize,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

impl GpuExecutable {
    /// Runs all kernels and returns the duration of each, in the program's order, or `None` if the adapter has no
    /// timestamps.
    pub(super) fn profile_dispatch(&self, tensors: &DispatchTensors<'_>) -> Result<Option<Vec<Duration>>, DeviceError> {
        let queue = &self.context.queue;
        let period = queue.lock_commands().timer.tick_period_ns();
        let Some(period) = period else {
            self.encode_dispatch(tensors)?;
            return Ok(None);
        };
        if self.passes.is_empty() {
            return Ok(Some(vec![Duration::ZERO; self.program.kernels.len()]));
        }
        let timestamps = DispatchTimestamps::new(&self.context, self.passes.len())?;
        // Lock in the same order as a dispatch: the bind groups, then the command queue.
        let mut bound = self.bind_groups.lock();
        self.bind_all(&mut bound, tensors);
        let mut line = queue.lock_commands();
        let encoder = queue.open_encoder(&mut line);
        tensors.clear_stale(encoder);
        for (at, (stage, groups)) in self.passes.iter().zip(&bound.passes).enumerate() {
            let timestamp_writes = Some(timestamps.pass_timestamp_writes(at));
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
            stage.encode(groups, &mut pass);
        }
        drop(bound);
        timestamps.resolve(encoder);
        line.kernels += self.passes.len() as u64;
        let number = queue.flush(&mut line)?;
        drop(line);
        let took = timestamps.read_durations(&self.context, number, period)?;
        self.meter.add_counters(DeviceCounters { submissions: 1, ..self.counts_per_dispatch() });
        self.meter.add_busy_time(took.iter().sum());
        let mut kernels = vec![Duration::ZERO; self.program.kernels.len()];
        for (stage, took) in self.passes.iter().zip(took) {
            kernels[stage.kernel] += took;
        }
        Ok(Some(kernels))
    }
}

impl DispatchTimestamps {
    fn new(context: &GpuContext, count: usize) -> Result<DispatchTimestamps, DeviceError> {
        let device = &context.device;
        let buffer =
            |usage| device.create_internal_buffer(&"timestamps", count as u64 * TIMESTAMP_PAIR_BYTES, usage, false);
        let set = |first: usize| {
            device.handle.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2 * (count - first).min(KERNELS_PER_QUERY_SET) as u32,
            })
        };
        let timestamps = DispatchTimestamps {
            query_sets: (0..count).step_by(KERNELS_PER_QUERY_SET).map(set).collect(),
            count,
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?,
            staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?,
        };
        device.ensure_alive()?;
        Ok(timestamps)
    }

    fn pass_timestamp_writes(&self, at: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        let query = 2 * (at % KERNELS_PER_QUERY_SET) as u32;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.query_sets[at / KERNELS_PER_QUERY_SET],
            beginning_of_pass_write_index: Some(query),
            end_of_pass_write_index: Some(query + 1),
        }
    }

    fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        for (number, set) in self.query_sets.iter().enumerate() {
            let first = number * KERNELS_PER_QUERY_SET;
            let queries = 2 * (self.count - first).min(KERNELS_PER_QUERY_SET) as u32;
            encoder.resolve_query_set(set, 0..queries, &self.resolved, first as u64 * TIMESTAMP_PAIR_BYTES);
        }
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, self.count as u64 * TIMESTAMP_PAIR_BYTES);
    }

    /// Waits for submission `number` and returns the duration of each pass; `period` is nanoseconds per tick.
    fn read_durations(&self, context: &GpuContext, number: u64, period: f64) -> Result<Vec<Duration>, DeviceError> {
        context.queue.wait_for_mapping(&self.staging, number, &CancelToken::never())?;
        let range =
            self.staging.slice(..).get_mapped_range().map_err(|error| context.device.lost_error(error.to_string()))?;
        Ok(range.chunks_exact(TIMESTAMP_PAIR_BYTES as usize).map(|pair| ticks_to_duration(pair, period)).collect())
    }
}
