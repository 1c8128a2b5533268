use super::*;

fn new_key(name: &str) -> NewKey {
    NewKey {
        name: name.to_owned(),
        scopes: vec![KeyScope::Predict],
        projects: None,
        rate: None,
        quota: None,
        max_running_jobs: None,
        gpu_seconds: None,
        expires_ms: None,
    }
}

fn key_file() -> (tempfile::TempDir, KeyFile) {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::new(directory.path().join("keys.json"));
    (directory, file)
}

#[test]
fn a_key_is_stored_as_its_hash_and_matches_its_text_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, file) = key_file();
    assert_eq!(file.read().unwrap(), []);
    assert_eq!(file.stamp(), None);
    let scopes = vec![KeyScope::ModelsWrite, KeyScope::Predict, KeyScope::Predict];
    let rate = Some("100/s".parse().unwrap());
    let quota = Some("5/month".parse().unwrap());
    let wanted = NewKey { scopes, rate, quota, expires_ms: Some(2_000), ..new_key("shop") };
    let (record, text) = file.create(wanted, 1_000).unwrap();
    assert_eq!(record.scopes, [KeyScope::Predict, KeyScope::ModelsWrite]);
    assert_eq!((key_id(&text), text.len()), (Some(record.id.as_str()), 4 + 8 + 1 + 64));
    assert_eq!(file.read().unwrap(), core::slice::from_ref(&record));
    assert!(record.matches_secret(&text));
    assert!(
        !record.matches_secret(&text[..text.len() - 1])
            && !record.matches_secret("")
            && !record.matches_secret(&text.to_uppercase())
    );
    assert!(!record.is_expired(1_999) && record.is_expired(2_000));
    let content = std::fs::read_to_string(file.path()).unwrap();
    let secret = text.rsplit('_').next().unwrap();
    assert!(!content.contains(secret) && content.contains(r#""rate": "100/s""#), "{content}");
    assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn keys_are_created_and_revoked_by_unique_name() {
    let (_directory, file) = key_file();
    let (first, text) = file.create(new_key("a"), 1).unwrap();
    let stamp = file.stamp();
    let (second, other) = file.create(new_key("b"), 2).unwrap();
    assert_ne!(file.stamp(), stamp);
    assert!(first.id != second.id && text != other && !second.matches_secret(&text));
    assert!(matches!(file.create(new_key("a"), 3), Err(KeyError::Exists { name }) if name == "a"));
    assert_eq!(file.revoke("a").unwrap(), first);
    assert!(matches!(file.revoke("a"), Err(KeyError::NotFound { name }) if name == "a"));
    assert_eq!(file.read().unwrap(), [second]);
}

#[test]
fn invalid_keys_are_refused() {
    let (_directory, file) = key_file();
    for name in ["", "Shop", "-a", "a b", "a/b", &"a".repeat(64)] {
        assert!(matches!(file.create(new_key(name), 1), Err(KeyError::BadName { .. })), "{name}");
    }
    assert!(matches!(file.create(NewKey { scopes: Vec::new(), ..new_key("a") }, 1), Err(KeyError::NoScope)));
    assert!(matches!(file.create(NewKey { expires_ms: Some(5), ..new_key("a") }, 5), Err(KeyError::Expired)));
    for text in ["", "sgr_", "sgr_12345678_", &format!("sgr_12345678_{}", "g".repeat(64)), &"x".repeat(77)] {
        assert_eq!(key_id(text), None, "{text}");
    }
    for damage in ["", "[]", r#"{"format": 2, "keys": []}"#, r#"{"format": 1, "keys": [{"id": "x"}]}"#] {
        std::fs::write(file.path(), damage).unwrap();
        assert!(matches!(file.read(), Err(KeyError::Damaged { .. })), "{damage}");
        assert!(file.create(new_key("a"), 1).is_err(), "nothing is written over what is not understood");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), damage);
    }
}

#[test]
fn a_key_may_be_limited_to_projects() {
    let (_directory, file) = key_file();
    let of = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>());
    let wanted = NewKey { projects: of(&["faces", "digits", "faces"]), ..new_key("ci") };
    assert_eq!(wanted.summary(), "predict in faces,digits,faces");
    let (record, _) = file.create(wanted, 1).unwrap();
    assert_eq!(record.projects, of(&["digits", "faces"]));
    assert_eq!(file.read().unwrap(), [record]);
    let refused = |projects: &[&str], scopes: &[KeyScope]| {
        let asked = NewKey { projects: of(projects), scopes: scopes.to_vec(), ..new_key("b") };
        file.create(asked, 1).unwrap_err().to_string()
    };
    let read = [KeyScope::JobsRead];
    assert!(refused(&[], &read).contains("names at least one, such as digits"));
    for name in ["", "Digits", "a/b", "a,b"] {
        assert!(refused(&["digits", name], &read).contains(&format!("`{name}` cannot be a project's name")), "{name}");
    }
    assert!(refused(&["a"; KEY_PROJECTS_MAX + 1], &read).contains("65 of them, and a key names at most 64"));
    let admin = refused(&["digits"], &[KeyScope::Predict, KeyScope::Admin]);
    assert!(admin.contains("cannot be limited to digits; leave the projects out"), "{admin}");
}

#[test]
fn a_key_file_without_projects_is_read_and_its_keys_are_unlimited() {
    let (_directory, file) = key_file();
    let digest = "0".repeat(64);
    let old = format!(
        r#"{{"format": 1, "keys": [{{"id": "00000000", "name": "a", "digest": "{digest}", "scopes": ["predict"], "created_ms": 1}}]}}"#
    );
    std::fs::write(file.path(), old).unwrap();
    assert_eq!(file.read().unwrap()[0].projects, None);
    file.create(new_key("b"), 1).unwrap();
    assert!(!std::fs::read_to_string(file.path()).unwrap().contains("projects"), "older builds read such keys");
}

#[test]
fn concurrently_created_keys_are_all_stored() {
    let (_directory, file) = key_file();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for at in 0..5 {
                    file.create(new_key(&format!("k{thread}.{at}")), 1).unwrap();
                }
            });
        }
    });
    assert_eq!(file.read().unwrap().len(), 20);
}

#[test]
fn limits_and_scopes_round_trip_as_text() {
    for text in ["100/s", "600/m", "1/h"] {
        assert_eq!(text.parse::<RateLimit>().unwrap().to_string(), text);
    }
    for text in ["10000/d", "1/month"] {
        assert_eq!(text.parse::<RequestQuota>().unwrap().to_string(), text);
    }
    for text in ["", "100", "0/s", "-1/s", "1.5/s", "100/d", "99999999999/s", "1/fortnight"] {
        assert!(text.parse::<RateLimit>().is_err(), "{text}");
    }
    assert!("100/s".parse::<RequestQuota>().is_err());
    for scope in KeyScope::ALL {
        assert_eq!(scope.name().parse(), Ok(scope));
        assert_eq!(serde_json::to_value(scope).unwrap(), scope.name());
        assert!(KeyScope::Admin.includes(scope) && scope.includes(scope));
        assert_eq!(KeyScope::JobsWrite.includes(scope), matches!(scope, KeyScope::JobsWrite | KeyScope::JobsRead));
    }
    assert!("jobs".parse::<KeyScope>().is_err());
}
