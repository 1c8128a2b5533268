//! What each kernel of one dispatch takes: a pass for each, with the device's timestamps before and after it. Passes of their
//! own keep kernels from overlapping, so their sum may be more than what a dispatch takes.

use std::time::Duration;

use super::clock::ticks;
use super::context::{Context, lock};
use super::executable::{Loaded, Tensors};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Counts;

/// Kernels whose timestamps fit into one set of queries.
const KERNELS_PER_SET: usize = (wgpu::QUERY_SET_MAX_QUERIES / 2) as usize;
/// Bytes of a kernel's two timestamps.
const BYTES_EACH: u64 = 16;

/// Timestamps of one dispatch.
struct Timestamps {
    sets: Vec<wgpu::QuerySet>,
    count: usize,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

/// Runs all kernels; what each of the program's took, in its order. None where the adapter has no timestamps.
pub(super) fn run(loaded: &Loaded, tensors: &Tensors<'_>) -> Result<Option<Vec<Duration>>, DeviceError> {
    let context = &loaded.context;
    let period = context.line().clock.period();
    let Some(period) = period else {
        loaded.run(tensors)?;
        return Ok(None);
    };
    if loaded.stages.is_empty() {
        return Ok(Some(vec![Duration::ZERO; loaded.program.kernels.len()]));
    }
    let timestamps = Timestamps::new(context, loaded.stages.len())?;
    // In the order of a dispatch: groups, then the line.
    let mut bound = lock(&loaded.groups);
    loaded.bind_all(&mut bound, tensors);
    let mut line = context.line();
    let encoder = context.open(&mut line);
    tensors.clear_stale(encoder);
    for (at, (stage, groups)) in loaded.stages.iter().zip(&bound.stages).enumerate() {
        let timestamp_writes = Some(timestamps.around(at));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        stage.encode(groups, &mut pass);
    }
    drop(bound);
    timestamps.resolve(encoder);
    line.kernels += loaded.stages.len() as u64;
    let number = context.flush(&mut line)?;
    drop(line);
    let took = timestamps.read(context, number, period)?;
    loaded.meter.add_work(Counts { submissions: 1, ..loaded.work() });
    loaded.meter.add_busy(took.iter().sum());
    let mut kernels = vec![Duration::ZERO; loaded.program.kernels.len()];
    for (stage, took) in loaded.stages.iter().zip(took) {
        kernels[stage.kernel] += took;
    }
    Ok(Some(kernels))
}

impl Timestamps {
    fn new(context: &Context, count: usize) -> Result<Timestamps, DeviceError> {
        let buffer = |usage| context.own_buffer(&"timestamps", count as u64 * BYTES_EACH, usage, false);
        let set = |first: usize| {
            context.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2 * (count - first).min(KERNELS_PER_SET) as u32,
            })
        };
        let timestamps = Timestamps {
            sets: (0..count).step_by(KERNELS_PER_SET).map(set).collect(),
            count,
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?,
            staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?,
        };
        context.alive()?;
        Ok(timestamps)
    }

    fn around(&self, at: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        let query = 2 * (at % KERNELS_PER_SET) as u32;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.sets[at / KERNELS_PER_SET],
            beginning_of_pass_write_index: Some(query),
            end_of_pass_write_index: Some(query + 1),
        }
    }

    fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        for (number, set) in self.sets.iter().enumerate() {
            let first = number * KERNELS_PER_SET;
            let queries = 2 * (self.count - first).min(KERNELS_PER_SET) as u32;
            encoder.resolve_query_set(set, 0..queries, &self.resolved, first as u64 * BYTES_EACH);
        }
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, self.count as u64 * BYTES_EACH);
    }

    /// Waits for the submission, and reads what each kernel took.
    fn read(&self, context: &Context, number: u64, period: f64) -> Result<Vec<Duration>, DeviceError> {
        context.wait_mapped(&self.staging, number, &CancelToken::never())?;
        let range = self.staging.slice(..).get_mapped_range().map_err(|error| context.lost(error.to_string()))?;
        Ok(range.chunks_exact(BYTES_EACH as usize).map(|pair| ticks(pair, period)).collect())
    }
}
