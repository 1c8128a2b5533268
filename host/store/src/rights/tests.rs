use super::*;
use crate::keys::NewKey;

/// Returns the rights of a key `k` with these scopes, limited to these projects; without a limit if the list is empty.
pub(crate) fn key_rights(scopes: &[KeyScope], projects: &[&str]) -> AccessRights {
    let projects: Vec<String> = projects.iter().map(|project| (*project).to_owned()).collect();
    let projects = (!projects.is_empty()).then_some(projects);
    AccessRights(Some(KeyRights { id: "00000001".to_owned(), name: "k".to_owned(), scopes: scopes.to_vec(), projects }))
}

fn to_strings(projects: &[&str]) -> Vec<String> {
    projects.iter().map(|project| (*project).to_owned()).collect()
}

#[test]
fn every_action_has_a_unique_name_and_a_scope() {
    let names: std::collections::BTreeSet<&str> = AccessAction::ALL.iter().map(|effect| effect.name()).collect();
    assert_eq!(names.len(), AccessAction::ALL.len());
    for effect in AccessAction::ALL {
        let (all, limited) = (key_rights(&[effect.scope()], &[]), key_rights(&[effect.scope()], &["digits"]));
        assert_eq!(all.check(effect, "x", Some(&to_strings(&["faces"]))), Ok(()), "{effect:?}");
        assert_eq!(limited.check(effect, "x", Some(&to_strings(&["faces", "digits"]))), Ok(()), "{effect:?}");
        let foreign = limited.check(effect, "x", Some(&to_strings(&["faces"])));
        assert!(matches!(foreign, Err(AccessDenied::Project { .. })), "{effect:?}");
        assert_eq!(limited.check(effect, "x", None).is_ok(), effect.is_allowed_without_project(), "{effect:?}");
        let scopes: Vec<KeyScope> = KeyScope::ALL.into_iter().filter(|scope| !scope.includes(effect.scope())).collect();
        let lacking = key_rights(&scopes, &[]).check(effect, "x", None);
        assert!(matches!(lacking, Err(AccessDenied::Scope { scope, .. }) if scope == effect.scope()), "{effect:?}");
        assert_eq!(AccessRights::default().check(effect, "x", Some(&to_strings(&["faces"]))), Ok(()), "{effect:?}");
    }
}

#[test]
fn a_job_publishes_new_models_and_models_of_its_project_only() {
    let publish = |rights: &AccessRights, is_new, owners: Option<&[&str]>| {
        let claim = VersionClaim { effect: AccessAction::PublishModel, rights, project: Some("digits") };
        claim.admit("net", is_new, owners.map(to_strings).as_deref())
    };
    let limited = key_rights(&[KeyScope::JobsWrite], &["digits", "letters"]);
    let all = key_rights(&[KeyScope::JobsWrite], &[]);
    let trusted = key_rights(&[KeyScope::JobsWrite, KeyScope::ModelsWrite], &[]);
    for trains in [&limited, &all, &trusted] {
        assert_eq!(publish(trains, true, None), Ok(Some(to_strings(&["digits"]))), "a new one is the project's");
        assert_eq!(publish(trains, false, Some(&["digits"])), Ok(None));
    }
    for foreign in [None, Some(["faces"].as_slice()), Some(&["letters"])] {
        assert!(matches!(publish(&limited, false, foreign), Err(AccessDenied::Scope { .. })), "{foreign:?}");
        assert!(matches!(publish(&all, false, foreign), Err(AccessDenied::Scope { .. })), "{foreign:?}");
        assert_eq!(publish(&trusted, false, foreign), Ok(None), "{foreign:?}");
        assert_eq!(publish(&AccessRights::default(), false, foreign), Ok(None));
    }
    let both = key_rights(&[KeyScope::JobsWrite, KeyScope::ModelsWrite], &["digits", "letters"]);
    assert_eq!(publish(&both, false, Some(&["letters"])), Ok(None));
    for foreign in [None, Some(["faces"].as_slice())] {
        let refused = publish(&both, false, foreign).unwrap_err();
        let words = "model net: it belongs to no project of the key k (digits, letters), so model.publish is refused";
        assert_eq!(refused.to_string(), words);
        assert!(refused.hint().contains("`saggar models projects net --project digits`"), "{}", refused.hint());
    }
    let lacking = publish(&limited, false, None).unwrap_err();
    assert_eq!(lacking.to_string(), "model net: the key k lacks the scope models:write for model.publish");
    assert!(lacking.hint().contains("saggar key create NAME --scope models:write"));
}

#[test]
fn a_new_dataset_belongs_to_the_projects_of_the_key_or_the_job() {
    let push = |rights: &AccessRights, project| {
        VersionClaim { effect: AccessAction::PushDataset, rights, project }.admit("d", true, None)
    };
    let limited = key_rights(&[KeyScope::JobsWrite], &["digits", "letters"]);
    assert_eq!(push(&limited, None), Ok(Some(to_strings(&["digits", "letters"]))));
    assert_eq!(push(&limited, Some("letters")), Ok(Some(to_strings(&["letters"]))));
    assert_eq!(push(&key_rights(&[KeyScope::JobsWrite], &[]), Some("letters")), Ok(None), "everybody reads it");
    assert!(matches!(push(&key_rights(&[KeyScope::JobsRead], &["digits"]), None), Err(AccessDenied::Scope { .. })));
}

#[test]
fn rights_revoked_from_a_key_are_revoked_from_its_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let keys = KeyFile::new(directory.path().join("keys.json"));
    let new = NewKey {
        name: "ci".to_owned(),
        scopes: vec![KeyScope::JobsWrite],
        projects: Some(to_strings(&["digits", "faces"])),
        rate: None,
        quota: None,
        max_running_jobs: None,
        gpu_seconds: None,
        expires_ms: Some(100),
    };
    let (record, _) = keys.create(new.clone(), 1).unwrap();
    let now = |rights: &AccessRights, now_ms| rights.refresh(&keys, now_ms, AccessAction::PublishModel, "net");
    let rights = AccessRights::from_key(&record);
    let scopes = vec![KeyScope::JobsRead, KeyScope::JobsWrite];
    let same = AccessRights::from_key(&KeyRecord { scopes, ..record.clone() });
    assert_eq!(now(&rights, 50), Ok(same.clone()));
    assert_eq!(
        now(&AccessRights::from_key_name("ci"), 50),
        Ok(rights.clone()),
        "of jobs that are older than this table"
    );
    assert_eq!(now(&AccessRights::default(), 50), Ok(AccessRights::default()));
    let gone = |refused: Result<AccessRights, AccessDenied>| matches!(refused, Err(AccessDenied::KeyGone { .. }));
    assert!(gone(now(&rights, 100)), "expired");
    // The job was recorded with more rights than the key has now, and with fewer.
    let more = KeyRecord { scopes: vec![KeyScope::Admin], projects: None, ..record.clone() };
    assert_eq!(now(&AccessRights::from_key(&more), 50), Ok(same));
    let less = AccessRights::from_key(&KeyRecord { projects: Some(to_strings(&["faces", "x"])), ..record.clone() });
    assert_eq!(now(&less, 50).unwrap().projects(), Some(to_strings(&["faces"]).as_slice()));
    // A later key with the same name is another key.
    keys.revoke("ci").unwrap();
    assert!(gone(now(&rights, 50)));
    keys.create(NewKey { scopes: vec![KeyScope::Admin], projects: None, ..new }, 2).unwrap();
    assert!(gone(now(&rights, 50)));
    std::fs::write(keys.path(), "no keys").unwrap();
    assert!(matches!(now(&rights, 50), Err(AccessDenied::Unknown { .. })));
    let text = serde_json::to_string(&rights).unwrap();
    assert_eq!(serde_json::from_str::<AccessRights>(&text).unwrap(), rights);
    assert_eq!(serde_json::to_string(&AccessRights::default()).unwrap(), "null");
}
