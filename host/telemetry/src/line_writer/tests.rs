use super::*;

const SOON: Duration = Duration::from_secs(60);

fn line(text: &str) -> Vec<u8> {
    format!("{text}\n").into_bytes()
}

#[test]
fn lines_are_appended_in_order_and_to_the_new_file_after_a_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, "before\n").unwrap();
    let writer = LineWriter::start(LineTarget::File(path.clone())).unwrap();
    (0..100).for_each(|at| writer.push(line(&at.to_string())));
    assert!(writer.flush(SOON));
    let rotated = directory.path().join("access.log.1");
    std::fs::rename(&path, &rotated).unwrap();
    writer.push(line("still the old one"));
    assert!(writer.flush(SOON));
    writer.reopen();
    writer.push(line("the new one"));
    assert!(writer.flush(SOON));
    let expected: String = (0..100).map(|at| format!("{at}\n")).collect();
    assert_eq!(std::fs::read_to_string(rotated).unwrap(), format!("before\n{expected}still the old one\n"));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "the new one\n");
    assert_eq!(writer.lost_lines(), 0);
}

#[test]
fn a_full_disk_loses_lines_and_counts_them() {
    // Every write to this device fails as on a full disk.
    let writer = LineWriter::start(LineTarget::File(PathBuf::from("/dev/full"))).unwrap();
    let metrics = saggar_metrics::MetricsRegistry::new();
    writer.push(line("one"));
    assert!(writer.flush(SOON));
    let counter = metrics.families.log_lines_lost.with_label_values(&["access"]);
    writer.count_in(counter.clone());
    writer.push(line("two"));
    assert!(writer.flush(SOON));
    assert_eq!((writer.lost_lines(), counter.get()), (2, 2));
}

#[test]
fn a_pipe_that_nobody_reads_does_not_block_and_loses_what_does_not_fit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    // Opened for reading too, so that opening it for writing does not wait.
    let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let writer = LineWriter::with_bytes_max(LineTarget::File(path), 10_000).unwrap();
    let text = "x".repeat(999);
    // A pipe holds 64 KiB. Line by line, until the thread waits for it.
    let mut written = 0;
    loop {
        writer.push(line(&text));
        if !writer.flush(Duration::from_secs(1)) {
            break;
        }
        written += 1;
        assert!(written < 1000, "the pipe is never full");
    }
    assert_eq!(writer.lost_lines(), 0);
    let began = Instant::now();
    (0..500).for_each(|_| writer.push(line(&text)));
    assert!(began.elapsed() < Duration::from_secs(20));
    // The queue takes ten lines.
    assert_eq!(writer.lost_lines(), 490);
    drop(reader);
}

#[test]
fn a_directory_is_no_log_file() {
    let directory = tempfile::tempdir().unwrap();
    assert!(LineWriter::start(LineTarget::File(directory.path().to_owned())).is_err());
}
