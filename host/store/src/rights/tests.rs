use super::*;
use crate::keys::NewKey;

/// The rights of a key `k` with these scopes, limited to these projects; to none where there are none.
pub(crate) fn rights(scopes: &[Scope], projects: &[&str]) -> Rights {
    let projects: Vec<String> = projects.iter().map(|project| (*project).to_owned()).collect();
    let projects = (!projects.is_empty()).then_some(projects);
    Rights(Some(KeyRights { id: "00000001".to_owned(), name: "k".to_owned(), scopes: scopes.to_vec(), projects }))
}

fn list(projects: &[&str]) -> Vec<String> {
    projects.iter().map(|project| (*project).to_owned()).collect()
}

#[test]
fn every_effect_has_a_name_and_a_scope_of_its_own_line() {
    let names: std::collections::BTreeSet<&str> = Effect::ALL.iter().map(|effect| effect.name()).collect();
    assert_eq!(names.len(), Effect::ALL.len());
    for effect in Effect::ALL {
        let (all, limited) = (rights(&[effect.scope()], &[]), rights(&[effect.scope()], &["digits"]));
        assert_eq!(all.check(effect, "x", Some(&list(&["faces"]))), Ok(()), "{effect:?}");
        assert_eq!(limited.check(effect, "x", Some(&list(&["faces", "digits"]))), Ok(()), "{effect:?}");
        let foreign = limited.check(effect, "x", Some(&list(&["faces"])));
        assert!(matches!(foreign, Err(Refused::Project { .. })), "{effect:?}");
        assert_eq!(limited.check(effect, "x", None).is_ok(), effect.is_open_to_all(), "{effect:?}");
        let scopes: Vec<Scope> = Scope::ALL.into_iter().filter(|scope| !scope.includes(effect.scope())).collect();
        let lacking = rights(&scopes, &[]).check(effect, "x", None);
        assert!(matches!(lacking, Err(Refused::Scope { scope, .. }) if scope == effect.scope()), "{effect:?}");
        assert_eq!(Rights::default().check(effect, "x", Some(&list(&["faces"]))), Ok(()), "{effect:?}");
    }
}

#[test]
fn a_training_publishes_new_models_and_those_of_its_project() {
    let publish = |rights: &Rights, is_new, owners: Option<&[&str]>| {
        let claim = Claim { effect: Effect::PublishModel, rights, project: Some("digits") };
        claim.admit("net", is_new, owners.map(list).as_deref())
    };
    let limited = rights(&[Scope::JobsWrite], &["digits", "letters"]);
    let all = rights(&[Scope::JobsWrite], &[]);
    let trusted = rights(&[Scope::JobsWrite, Scope::ModelsWrite], &[]);
    for trains in [&limited, &all, &trusted] {
        assert_eq!(publish(trains, true, None), Ok(Some(list(&["digits"]))), "a new one is the project's");
        assert_eq!(publish(trains, false, Some(&["digits"])), Ok(None));
    }
    for foreign in [None, Some(["faces"].as_slice()), Some(&["letters"])] {
        assert!(matches!(publish(&limited, false, foreign), Err(Refused::Scope { .. })), "{foreign:?}");
        assert!(matches!(publish(&all, false, foreign), Err(Refused::Scope { .. })), "{foreign:?}");
        assert_eq!(publish(&trusted, false, foreign), Ok(None), "{foreign:?}");
        assert_eq!(publish(&Rights::default(), false, foreign), Ok(None));
    }
    let both = rights(&[Scope::JobsWrite, Scope::ModelsWrite], &["digits", "letters"]);
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
fn a_new_dataset_is_of_the_projects_of_the_key_or_of_the_job() {
    let push = |rights: &Rights, project| Claim { effect: Effect::PushDataset, rights, project }.admit("d", true, None);
    let limited = rights(&[Scope::JobsWrite], &["digits", "letters"]);
    assert_eq!(push(&limited, None), Ok(Some(list(&["digits", "letters"]))));
    assert_eq!(push(&limited, Some("letters")), Ok(Some(list(&["letters"]))));
    assert_eq!(push(&rights(&[Scope::JobsWrite], &[]), Some("letters")), Ok(None), "everybody reads it");
    assert!(matches!(push(&rights(&[Scope::JobsRead], &["digits"]), None), Err(Refused::Scope { .. })));
}

#[test]
fn what_a_key_lost_its_jobs_lost_too() {
    let directory = tempfile::tempdir().unwrap();
    let keys = KeyFile::new(directory.path().join("keys.json"));
    let new = NewKey {
        name: "ci".to_owned(),
        scopes: vec![Scope::JobsWrite],
        projects: Some(list(&["digits", "faces"])),
        rate: None,
        quota: None,
        max_running_jobs: None,
        gpu_seconds: None,
        expires_ms: Some(100),
    };
    let (record, _) = keys.create(new.clone(), 1).unwrap();
    let now = |rights: &Rights, now_ms| rights.now(&keys, now_ms, Effect::PublishModel, "net");
    let rights = Rights::of_key(&record);
    let scopes = vec![Scope::JobsRead, Scope::JobsWrite];
    let same = Rights::of_key(&KeyRecord { scopes, ..record.clone() });
    assert_eq!(now(&rights, 50), Ok(same.clone()));
    assert_eq!(now(&Rights::of_key_named("ci"), 50), Ok(rights.clone()), "of jobs that are older than this table");
    assert_eq!(now(&Rights::default(), 50), Ok(Rights::default()));
    let gone = |refused: Result<Rights, Refused>| matches!(refused, Err(Refused::KeyGone { .. }));
    assert!(gone(now(&rights, 100)), "expired");
    // It was recorded with more than it has now, and with less.
    let more = KeyRecord { scopes: vec![Scope::Admin], projects: None, ..record.clone() };
    assert_eq!(now(&Rights::of_key(&more), 50), Ok(same));
    let less = Rights::of_key(&KeyRecord { projects: Some(list(&["faces", "x"])), ..record.clone() });
    assert_eq!(now(&less, 50).unwrap().projects(), Some(list(&["faces"]).as_slice()));
    // A key of the same name that was made later is another one.
    keys.revoke("ci").unwrap();
    assert!(gone(now(&rights, 50)));
    keys.create(NewKey { scopes: vec![Scope::Admin], projects: None, ..new }, 2).unwrap();
    assert!(gone(now(&rights, 50)));
    std::fs::write(keys.path(), "no keys").unwrap();
    assert!(matches!(now(&rights, 50), Err(Refused::Unknown { .. })));
    let text = serde_json::to_string(&rights).unwrap();
    assert_eq!(serde_json::from_str::<Rights>(&text).unwrap(), rights);
    assert_eq!(serde_json::to_string(&Rights::default()).unwrap(), "null");
}
