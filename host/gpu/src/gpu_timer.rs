//! GPU time: timestamps around the pass of each dispatch, read back in bulk and later, so that no dispatch waits for
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::wgpu_device::WgpuDevice;
use saggar_device::error::DeviceError;
use saggar_device::meter::Meter;

/// Dispatches timed between two read-backs.
const DISPATCHES_PER_QUERY_SET: u32 = 64;
const QUERY_SET_BYTES: u64 = DISPATCHES_PER_QUERY_SET as u64 * 16;

/// Measures the busy time of one device's dispatches.
#[derive(Debug)]
pub(super) enum GpuTimer {
    /// Measures with the device's timestamps.
    Timestamps {
        /// Nanoseconds per tick.
        period: f64,
        /// The queries for the next dispatches; `None` until the first dispatch after a read-back.
        current: Option<TimestampQueries>,
        /// Queries whose results were read and that can be reused.
        spare_queries: Arc<Mutex<Vec<TimestampQueries>>>,
    },
    /// Measures wall time from a submission, or from the end of the previous one, to its completion.
    WallTime {
        /// Time at which the last submission was seen to be complete.
        last_completion: Arc<Mutex<Instant>>,
    },
}

/// A set of timestamp queries, and the meter of each pair.
#[derive(Debug)]
pub(super) struct TimestampQueries {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    meters: Vec<Meter>,
}

/// Timestamps that are being read back.
#[derive(Debug)]
pub(super) struct TimestampReadback {
    queries: TimestampQueries,
    period: f64,
    spare_queries: Arc<Mutex<Vec<TimestampQueries>>>,
}

impl GpuTimer {
    /// Returns the timer of a device. Its queries are created at the first dispatch.
    pub(super) fn new(device: &WgpuDevice) -> GpuTimer {
        if !device.handle.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return GpuTimer::WallTime { last_completion: Arc::new(Mutex::new(Instant::now())) };
        }
        let period = f64::from(device.queue.get_timestamp_period());
        GpuTimer::Timestamps { period, current: None, spare_queries: Arc::default() }
    }

    /// Returns the nanoseconds per timestamp tick, or `None` if the device has no timestamps.
    pub(super) fn tick_period_ns(&self) -> Option<f64> {
        match self {
            GpuTimer::Timestamps { period, .. } => Some(*period),
            GpuTimer::WallTime { .. } => None,
        }
    }

    /// Returns whether times are measured with the device's timestamps.
    pub(super) fn has_timestamps(&self) -> bool {
        self.tick_period_ns().is_some()
    }

    /// Reserves queries for the next dispatch; called before its commands are encoded.
    ///
    /// # Errors
    /// Returns `InsufficientMemory` if the driver has no memory for more queries, and `Lost`.
    pub(super) fn reserve_queries(&mut self, device: &WgpuDevice) -> Result<(), DeviceError> {
        if let GpuTimer::Timestamps { current: current @ None, spare_queries: spare, .. } = self {
            let ready = spare.lock().pop();
            *current = Some(ready.map_or_else(|| TimestampQueries::new(device), Ok)?);
        }
        Ok(())
    }

    /// Returns the queries that the next dispatch writes, or `None` without timestamps. `meter` is credited with the
    /// time between them.
    pub(super) fn next_timestamp_writes(&mut self, meter: &Meter) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        match self {
            GpuTimer::WallTime { .. } | GpuTimer::Timestamps { current: None, .. } => None,
            GpuTimer::Timestamps { current: Some(current), .. } => {
                let slot = current.meters.len() as u32;
                current.meters.push(meter.clone());
                Some(wgpu::ComputePassTimestampWrites {
                    query_set: &current.queries,
                    beginning_of_pass_write_index: Some(slot * 2),
                    end_of_pass_write_index: Some(slot * 2 + 1),
                })
            }
        }
    }

    /// Returns whether the queries must be read back before another dispatch can be timed.
    pub(super) fn is_full(&self) -> bool {
        match self {
            GpuTimer::WallTime { .. } | GpuTimer::Timestamps { current: None, .. } => false,
            GpuTimer::Timestamps { current: Some(current), .. } => {
                current.meters.len() as u32 >= DISPATCHES_PER_QUERY_SET
            }
        }
    }

    /// Encodes the read-back of all timestamps so far. Call [`TimestampReadback::credit_meters`] after the submission.
    pub(super) fn encode_readback(&mut self, encoder: &mut wgpu::CommandEncoder) -> Option<TimestampReadback> {
        match self {
            GpuTimer::WallTime { .. } => None,
            GpuTimer::Timestamps { period, current, spare_queries: spare } => {
                let slots = current.take_if(|current| !current.meters.is_empty())?;
                let count = slots.meters.len() as u32 * 2;
                encoder.resolve_query_set(&slots.queries, 0..count, &slots.resolved, 0);
                encoder.copy_buffer_to_buffer(&slots.resolved, 0, &slots.staging, 0, u64::from(count) * 8);
                Some(TimestampReadback { queries: slots, period: *period, spare_queries: Arc::clone(spare) })
            }
        }
    }

    /// Returns the callback for the completion of the submission just made, or `None` if the device has timestamps.
    pub(super) fn wall_time_callback(&self, meter: &Meter) -> Option<impl FnOnce() + Send + 'static> {
        match self {
            GpuTimer::Timestamps { .. } => None,
            GpuTimer::WallTime { last_completion: done } => {
                let (done, meter, submitted) = (Arc::clone(done), meter.clone(), Instant::now());
                Some(move || {
                    let mut done = done.lock();
                    let now = Instant::now();
                    meter.add_busy_time(now.saturating_duration_since(submitted.max(*done)));
                    *done = now;
                })
            }
        }
    }
}

impl TimestampQueries {
    fn new(device: &WgpuDevice) -> Result<TimestampQueries, DeviceError> {
        let buffer = |usage| device.create_internal_buffer(&"timestamps", QUERY_SET_BYTES, usage, false);
        let descriptor = wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: DISPATCHES_PER_QUERY_SET * 2,
        };
        let queries = device.with_error_scopes(|| device.handle.create_query_set(&descriptor));
        Ok(TimestampQueries {
            queries: queries.map_err(|error| device.allocation_error(&"timestamps", QUERY_SET_BYTES, &error))?,
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?,
            staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?,
            meters: Vec::new(),
        })
    }
}

impl TimestampReadback {
    /// Maps the results and credits the meters when the submission is done and the device is polled.
    pub(super) fn credit_meters(self) {
        let staging = self.queries.staging.clone();
        let bytes = self.queries.meters.len() as u64 * 16;
        staging.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            let TimestampReadback { queries: mut slots, period, spare_queries: spare } = self;
            if result.is_err() {
                return;
            }
            if let Ok(range) = slots.staging.slice(..bytes).get_mapped_range() {
                for (pair, meter) in range.chunks_exact(16).zip(&slots.meters) {
                    meter.add_busy_time(ticks_to_duration(pair, period));
                }
            }
            slots.staging.unmap();
            slots.meters.clear();
            spare.lock().push(slots);
        });
    }
}

/// Returns the time between two timestamps of 8 bytes each; `period` is nanoseconds per tick.
pub(super) fn ticks_to_duration(pair: &[u8], period: f64) -> Duration {
    let tick = |at: usize| pair.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    Duration::from_nanos((tick(8).saturating_sub(tick(0)) as f64 * period) as u64)
}
