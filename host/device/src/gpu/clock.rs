//! Busy time: timestamps around each dispatch's pass, read in bulk and late so that no dispatch waits for them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::context::{Context, lock};
use crate::error::DeviceError;
use crate::meter::Meter;

/// Dispatches timed between two read-backs.
const SLOTS: u32 = 64;
const BYTES: u64 = SLOTS as u64 * 16;

/// Times the dispatches of one device.
#[derive(Debug)]
pub(super) enum Clock {
    /// The device's own timestamps.
    Exact {
        /// Nanoseconds of one tick.
        period: f64,
        /// Where the next dispatches' timestamps go; none until there is one.
        current: Option<Slots>,
        /// Sets whose readings have been delivered.
        spare: Arc<Mutex<Vec<Slots>>>,
    },
    /// Wall time between a submission, or the end of the one before, and its completion.
    Wall {
        /// When the last submission was seen to be done.
        done: Arc<Mutex<Instant>>,
    },
}

/// A set of timestamp queries, and the owner of each pair.
#[derive(Debug)]
pub(super) struct Slots {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    meters: Vec<Meter>,
}

/// Timestamps on their way back.
#[derive(Debug)]
pub(super) struct Readings {
    slots: Slots,
    period: f64,
    spare: Arc<Mutex<Vec<Slots>>>,
}

impl Clock {
    /// One for this device. What it needs is made with the first dispatch.
    pub(super) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Clock {
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Clock::Wall { done: Arc::new(Mutex::new(Instant::now())) };
        }
        let period = f64::from(queue.get_timestamp_period());
        Clock::Exact { period, current: None, spare: Arc::default() }
    }

    /// Nanoseconds of one tick of the device's own timestamps, where it has them.
    pub(super) fn period(&self) -> Option<f64> {
        match self {
            Clock::Exact { period, .. } => Some(*period),
            Clock::Wall { .. } => None,
        }
    }

    /// Whether the times are the device's own.
    pub(super) fn is_exact(&self) -> bool {
        self.period().is_some()
    }

    /// Makes room for the next dispatch's timestamps, before its commands.
    ///
    /// # Errors
    /// `NoRoom` where the driver has no memory for more of them; `Lost`.
    pub(super) fn prepare(&mut self, context: &Context) -> Result<(), DeviceError> {
        if let Clock::Exact { current: current @ None, spare, .. } = self {
            let ready = lock(spare).pop();
            *current = Some(ready.map_or_else(|| Slots::new(context), Ok)?);
        }
        Ok(())
    }

    /// Where the next dispatch writes its timestamps; `meter` is credited with the time between them.
    pub(super) fn pass(&mut self, meter: &Meter) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        match self {
            Clock::Wall { .. } | Clock::Exact { current: None, .. } => None,
            Clock::Exact { current: Some(current), .. } => {
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

    /// Whether no further dispatch can be timed before the readings are taken.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Clock::Wall { .. } | Clock::Exact { current: None, .. } => false,
            Clock::Exact { current: Some(current), .. } => current.meters.len() as u32 >= SLOTS,
        }
    }

    /// Encodes the read-back of all timestamps so far; [`Readings::deliver`] follows the submission.
    pub(super) fn take_readings(&mut self, encoder: &mut wgpu::CommandEncoder) -> Option<Readings> {
        match self {
            Clock::Wall { .. } => None,
            Clock::Exact { period, current, spare } => {
                let slots = current.take_if(|current| !current.meters.is_empty())?;
                let count = slots.meters.len() as u32 * 2;
                encoder.resolve_query_set(&slots.queries, 0..count, &slots.resolved, 0);
                encoder.copy_buffer_to_buffer(&slots.resolved, 0, &slots.staging, 0, u64::from(count) * 8);
                Some(Readings { slots, period: *period, spare: Arc::clone(spare) })
            }
        }
    }

    /// What to call when the submission just made is done, where the device has no timestamps.
    pub(super) fn on_done(&self, meter: &Meter) -> Option<impl FnOnce() + Send + 'static> {
        match self {
            Clock::Exact { .. } => None,
            Clock::Wall { done } => {
                let (done, meter, submitted) = (Arc::clone(done), meter.clone(), Instant::now());
                Some(move || {
                    let mut done = lock(&done);
                    let now = Instant::now();
                    meter.add_busy(now.saturating_duration_since(submitted.max(*done)));
                    *done = now;
                })
            }
        }
    }
}

impl Slots {
    fn new(context: &Context) -> Result<Slots, DeviceError> {
        let buffer = |usage| context.own_buffer(&"timestamps", BYTES, usage, false);
        let descriptor = wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: SLOTS * 2 };
        let queries = context.scoped(|| context.device.create_query_set(&descriptor));
        Ok(Slots {
            queries: queries.map_err(|error| context.refused(&"timestamps", BYTES, &error))?,
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?,
            staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?,
            meters: Vec::new(),
        })
    }
}

impl Readings {
    /// Credits the meters once the submission is done and the device polled.
    pub(super) fn deliver(self) {
        let staging = self.slots.staging.clone();
        let bytes = self.slots.meters.len() as u64 * 16;
        staging.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            let Readings { mut slots, period, spare } = self;
            if result.is_err() {
                return;
            }
            if let Ok(range) = slots.staging.slice(..bytes).get_mapped_range() {
                for (pair, meter) in range.chunks_exact(16).zip(&slots.meters) {
                    meter.add_busy(ticks(pair, period));
                }
            }
            slots.staging.unmap();
            slots.meters.clear();
            lock(&spare).push(slots);
        });
    }
}

/// The time between two timestamps, of 8 bytes each, whose ticks take `period` nanoseconds.
pub(super) fn ticks(pair: &[u8], period: f64) -> Duration {
    let tick = |at: usize| pair.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    Duration::from_nanos((tick(8).saturating_sub(tick(0)) as f64 * period) as u64)
}
