//! Faults 3, 4, 5 and 11: truncated, flipped, missing, misplaced and foreign files.

use super::*;

/// Returns a directory with steps 1 and 2, and the files that only step 2 uses.
fn two_steps_and_files_of_the_second() -> (TempDir, Vec<(PathBuf, Vec<u8>)>) {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    block_on(checkpoints.save(JOB, 1, &checkpoint(1))).unwrap();
    let before = files_below(directory.path());
    block_on(checkpoints.save(JOB, 1, &checkpoint(2))).unwrap();
    let new: Vec<_> =
        files_below(directory.path()).into_iter().filter(|(path, _)| !before.contains_key(path)).collect();
    assert_eq!(new.len(), 3, "two parts and a manifest");
    (directory, new)
}

/// Damages each file of the newest checkpoint in turn, and checks that the previous checkpoint is used and the file is
/// named.
fn check_each_damage(damages: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let (directory, new) = two_steps_and_files_of_the_second();
    let checkpoints = open_store(directory.path());
    for (path, content) in new {
        for (number, damaged) in damages(&content).into_iter().enumerate() {
            if damaged == content {
                continue;
            }
            std::fs::write(&path, damaged).unwrap();
            let latest = block_on(checkpoints.latest(JOB, PLUGIN)).unwrap();
            assert_eq!(latest.found.unwrap().1, checkpoint(1), "damage {number} of {}", path.display());
            assert!(latest.skipped[0].file.ends_with("2-1.json") && latest.skipped.len() == 1, "{:?}", latest.skipped);
        }
        std::fs::write(&path, content).unwrap();
    }
    assert_eq!(resume_step(directory.path()), Some(2));
}

#[test]
fn a_file_truncated_at_any_4_kib_falls_back_to_the_previous_checkpoint() {
    check_each_damage(|content| {
        let size = content.len();
        // The trailing line break is not part of a manifest.
        let cuts = (0..size).step_by(4096).chain([1, 511, size / 2, size - 2]).filter(|cut| *cut < size - 1);
        cuts.map(|cut| content[..cut].to_vec()).collect()
    });
    // A tail of zeros replaces data that was not written.
    check_each_damage(|content| {
        let cuts = [0, content.len() / 3, content.len() - 2];
        cuts.map(|cut| [&content[..cut], &vec![0; content.len() - cut]].concat()).into()
    });
}

#[test]
fn a_flipped_bit_in_any_region_falls_back_to_the_previous_checkpoint() {
    check_each_damage(|content| {
        let places = (0..32).map(|region| region * (content.len() - 1) / 32).chain([content.len() - 2]);
        let flipped = places.map(|at| {
            let mut flipped = content.to_vec();
            flipped[at] ^= 1 << (at % 8);
            flipped
        });
        flipped.collect()
    });
}

#[test]
fn an_empty_missing_or_replaced_file_falls_back_to_the_previous_checkpoint() {
    check_each_damage(|_| vec![Vec::new()]);
    let (directory, new) = two_steps_and_files_of_the_second();
    for (path, content) in new {
        std::fs::remove_file(&path).unwrap();
        let latest = block_on(open_store(directory.path()).latest(JOB, PLUGIN)).unwrap();
        assert_eq!(latest.found.unwrap().1, checkpoint(1), "{} is missing", path.display());
        std::fs::create_dir(&path).unwrap();
        let latest = block_on(open_store(directory.path()).latest(JOB, PLUGIN)).unwrap();
        assert_eq!(latest.found.unwrap().1, checkpoint(1), "{} is a folder", path.display());
        std::fs::remove_dir(&path).unwrap();
        // Saving the same checkpoint again restores the missing file.
        block_on(open_store(directory.path()).save(JOB, 1, &checkpoint(2))).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    // A job folder without a manifest is a job without checkpoints.
    std::fs::create_dir_all(directory.path().join("checkpoints/other/parts")).unwrap();
    assert!(block_on(open_store(directory.path()).latest("other", PLUGIN)).unwrap().found.is_none());
}

/// Returns a manifest's text in a format version, with a correct digest.
fn manifest_of_format(format: u64, body: &str) -> String {
    let mut hasher = Sha256Hasher::new();
    hasher.update(format!("saggar checkpoint {format}\n{body}").as_bytes());
    format!(r#"{{"format":{format},"sha256":"{}","body":{body}}}"#, hasher.finish())
}

#[test]
fn another_format_plugin_or_data_type_is_refused_by_name() {
    let (directory, _) = two_steps_and_files_of_the_second();
    let checkpoints = open_store(directory.path());
    let folder = directory.path().join("checkpoints").join(JOB);
    let refusal = |plugin| block_on(checkpoints.latest(JOB, plugin)).unwrap_err().to_string();
    assert!(refusal("another").contains("was written by plugin plugin-1, and this job runs plugin another"));
    // A newer format, and one older than any that this build reads.
    let newer = folder.join(format!("{:020}-1.json", 3));
    for format in [0, 5, u64::MAX] {
        std::fs::write(&newer, manifest_of_format(format, "{}")).unwrap();
        assert!(
            refusal(PLUGIN).contains(&format!("has checkpoint format {format}, and this build reads formats up to 4"))
        );
    }
    // A variable whose type does not match its bytes is damage, even if the manifest's digest is correct.
    let text = std::fs::read_to_string(folder.join(format!("{:020}-1.json", 2))).unwrap();
    let body = text.split_once(r#""body":"#).unwrap().1.trim_end().strip_suffix('}').unwrap();
    let body = body.replacen("uint8", "float32", 1).replacen(r#""step":2"#, r#""step":3"#, 1);
    std::fs::write(&newer, manifest_of_format(2, &body)).unwrap();
    let latest = block_on(checkpoints.latest(JOB, PLUGIN)).unwrap();
    assert_eq!(latest.found.unwrap().1, checkpoint(2));
    let reason = &latest.skipped[0].reason;
    assert!(reason.contains("the pieces of variable bias are not those of float32"), "{reason}");
    let damaged = block_on(checkpoints.verify(JOB)).unwrap();
    assert_eq!(damaged.iter().filter(|it| it.outcome.is_err()).map(|it| it.step).collect::<Vec<_>>(), [3]);
}
