use super::*;
use crate::{ModelTraffic, ModelTrafficTable};

const START_MS: u64 = 1_000_000;

fn of_model(quantity: HistoryQuantity) -> HistoryKey {
    (quantity, HistorySubject::Model("digits".to_owned()))
}

fn busy_of(device: &str) -> HistoryKey {
    (HistoryQuantity::DeviceBusy, HistorySubject::Device(device.to_owned()))
}

fn running(project: &str) -> HistoryKey {
    (HistoryQuantity::JobsRunning, HistorySubject::Project(project.to_owned()))
}

/// Returns a snapshot `second` seconds after the start.
fn snapshot(second: u64) -> HistorySnapshot {
    HistorySnapshot {
        elapsed: Duration::from_secs(second),
        now_ms: START_MS + second * 1000,
        ..HistorySnapshot::default()
    }
}

fn snapshot_of(second: u64, traffic: &ModelTrafficTable) -> HistorySnapshot {
    HistorySnapshot { traffic: traffic.counts(), ..snapshot(second) }
}

/// Returns all samples of a ring.
fn all(history: &MetricHistory, resolution: HistoryResolution) -> HistorySamples {
    history.samples_since(resolution, 0, |_| true)
}

fn values(samples: &HistorySamples, key: &HistoryKey) -> Vec<Option<f32>> {
    samples.series.iter().find(|(found, _)| found == key).map(|(_, values)| values.clone()).unwrap_or_default()
}

fn record(model: &ModelTraffic, requests: usize, milliseconds: u64) {
    (0..requests).for_each(|_| model.record_request(Duration::from_millis(milliseconds), false));
}

#[test]
fn a_second_has_the_rate_the_percentiles_and_the_batch_size_of_its_requests() {
    let (history, traffic) = (MetricHistory::default(), ModelTrafficTable::default());
    history.add(&snapshot_of(0, &traffic));
    let digits = traffic.of_model("digits");
    record(&digits, 98, 10);
    record(&digits, 1, 500);
    digits.record_request(Duration::from_millis(500), true);
    [4, 8].into_iter().for_each(|items| digits.record_execution(items));
    history.add(&snapshot_of(1, &traffic));
    history.add(&snapshot_of(2, &traffic));
    let samples = all(&history, HistoryResolution::Second);
    assert_eq!(samples.times_ms, [START_MS + 1000, START_MS + 2000]);
    let of = |quantity| values(&samples, &of_model(quantity));
    assert_eq!(of(HistoryQuantity::ModelRequests), [Some(100.0), Some(0.0)]);
    assert_eq!(of(HistoryQuantity::ModelErrors), [Some(1.0), Some(0.0)]);
    assert_eq!(of(HistoryQuantity::ModelBatchItems), [Some(6.0), None]);
    for (quantity, expected) in [(HistoryQuantity::ModelLatencyP50, 0.01), (HistoryQuantity::ModelLatencyP99, 0.5)] {
        let found = of(quantity);
        assert!((found[0].unwrap() / expected - 1.0).abs() < 0.07 && found[1].is_none(), "{quantity:?}: {found:?}");
    }
}

#[test]
fn a_minute_has_the_percentiles_of_all_its_requests_and_the_mean_of_its_gauges() {
    let (history, traffic) = (MetricHistory::default(), ModelTrafficTable::default());
    let digits = traffic.of_model("digits");
    for second in 0..=120 {
        // In the first minute one second has all slow requests, so a mean of percentiles would be too low.
        record(&digits, 10, if second == 30 { 800 } else { 10 });
        let gauges = vec![(running("faces"), (second % 2) as f64)];
        history.add(&HistorySnapshot { gauges, ..snapshot_of(second, &traffic) });
    }
    let samples = all(&history, HistoryResolution::Minute);
    assert_eq!(samples.times_ms, [START_MS + 60_000, START_MS + 120_000]);
    assert_eq!(values(&samples, &of_model(HistoryQuantity::ModelRequests)), [Some(10.0), Some(10.0)]);
    let p99 = values(&samples, &of_model(HistoryQuantity::ModelLatencyP99));
    assert!(p99[0].unwrap() > 0.7 && p99[1].unwrap() < 0.02, "{p99:?}");
    let means = values(&samples, &running("faces"));
    assert!(means.iter().all(|mean| (mean.unwrap() - 0.5).abs() < 0.02), "{means:?}");
    assert_eq!(all(&history, HistoryResolution::Second).times_ms.len(), 120);
}

#[test]
fn rings_keep_their_span_and_since_cuts_it() {
    let history = MetricHistory::default();
    for second in 0..=700 {
        let gauges = vec![(running("digits"), second as f64)];
        history.add(&HistorySnapshot { gauges, ..snapshot(second) });
    }
    let samples = all(&history, HistoryResolution::Second);
    assert_eq!((samples.times_ms.len(), samples.times_ms[0]), (SECOND_SAMPLES_MAX, START_MS + 101_000));
    assert_eq!(values(&samples, &running("digits"))[0], Some(101.0));
    let newer = history.samples_since(HistoryResolution::Second, START_MS + 698_000, |_| true);
    assert_eq!(newer.times_ms, [START_MS + 699_000, START_MS + 700_000]);
    assert_eq!(values(&newer, &running("digits")), [Some(699.0), Some(700.0)]);
    let none = history.samples_since(HistoryResolution::Second, 0, |key| *key == running("faces"));
    assert_eq!(none.series, []);
}

#[test]
fn a_jump_of_the_wall_clock_moves_the_times_and_loses_no_sample() {
    let history = MetricHistory::default();
    for second in 0..=4 {
        // In the third second the clock is set back an hour.
        let back = if second < 3 { 0 } else { 3_600_000 };
        history.add(&HistorySnapshot { now_ms: 10_000_000 + second * 1000 - back, ..snapshot(second) });
    }
    let samples = all(&history, HistoryResolution::Second);
    assert_eq!(samples.times_ms, [6_401_000, 6_402_000, 6_403_000, 6_404_000]);
}

#[test]
fn a_device_is_as_busy_as_its_reports_of_the_last_seconds_say() {
    let history = MetricHistory::default();
    // A job works all the time and reports every two seconds.
    for second in 0..=20_u64 {
        let device_busy_seconds = BTreeMap::from([("cpu".to_owned(), (second / 2 * 2) as f64)]);
        history.add(&HistorySnapshot { device_busy_seconds, ..snapshot(second) });
    }
    let shares = values(&all(&history, HistoryResolution::Second), &busy_of("cpu"));
    assert!(shares[6..].iter().all(|share| share.unwrap() >= 0.8), "{shares:?}");
}

#[test]
fn a_series_without_values_makes_room_and_the_memory_has_a_bound() {
    let history = MetricHistory::default();
    let job = |number: usize| {
        let subject = HistorySubject::JobMemory {
            device: "cpu".to_owned(),
            job: format!("digits-{number}"),
            project: "digits".to_owned(),
        };
        (HistoryQuantity::DeviceMemory, subject)
    };
    // Each second another thousand jobs.
    for second in 0..5_usize {
        let gauges = (0..1000).map(|number| (job(second * 1000 + number), 1.0)).collect();
        history.add(&HistorySnapshot { gauges, ..snapshot(second as u64) });
    }
    assert_eq!(history.series_counts().0, HISTORY_SERIES_MAX);
    let samples = all(&history, HistoryResolution::Second);
    assert!(values(&samples, &job(4999)).last().unwrap().is_some(), "the newest jobs are there");
    assert_eq!(samples.left_out, 0);
    // More at the same time than a ring holds.
    let gauges = (0..HISTORY_SERIES_MAX + 10).map(|number| (job(10_000 + number), 1.0)).collect();
    history.add(&HistorySnapshot { gauges, ..snapshot(6) });
    assert_eq!(history.series_counts().0, HISTORY_SERIES_MAX);
    assert!(all(&history, HistoryResolution::Second).left_out >= 10);
}

#[test]
fn a_model_that_was_made_again_has_no_negative_rates() {
    let (history, traffic) = (MetricHistory::default(), ModelTrafficTable::default());
    record(&traffic.of_model("digits"), 50, 1);
    traffic.of_model("digits").record_execution(50);
    history.add(&snapshot_of(0, &traffic));
    traffic.remove_model("digits");
    record(&traffic.of_model("digits"), 3, 1);
    history.add(&snapshot_of(1, &traffic));
    let samples = all(&history, HistoryResolution::Second);
    assert_eq!(values(&samples, &of_model(HistoryQuantity::ModelRequests)), [Some(3.0)]);
}
