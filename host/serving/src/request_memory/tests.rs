use std::time::Duration;

use super::*;

fn key(name: &str) -> Option<ClientKey> {
    Some(ClientKey::Key(name.into()))
}

#[test]
fn a_client_gets_half_of_the_free_memory_budget() {
    let budget = RequestMemoryBudget::new(1000);
    let [mut first, mut second] = ["a", "b"].map(|name| budget.charge_for_client(key(name)));
    assert!(first.try_resize(500) && !first.try_resize(501));
    let mut more = first.empty_charge();
    assert!(!more.try_resize(1), "all charges of a client count together");
    assert!(second.try_resize(250) && !second.try_resize(251));
    assert_eq!((budget.used_bytes(), first.bytes(), second.bytes()), (750, 500, 250));
    drop(first);
    assert!(second.try_resize(500), "what another gives back is there for all");
    drop(second);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn requests_without_a_key_share_one_account() {
    let budget = RequestMemoryBudget::new(1000);
    let mut first = budget.charge_for_client(None);
    let second = budget.charge_for_client(None);
    assert_eq!(first.client(), second.client());
    assert!(first.try_resize(300));
    let charge = first.take();
    assert_eq!((first.bytes(), charge.bytes(), budget.used_bytes()), (0, 300, 300));
}

#[test]
fn empty_client_accounts_are_dropped() {
    let budget = RequestMemoryBudget::new(1 << 30);
    let mut held = budget.charge_for_client(key("held"));
    assert!(held.try_resize(7));
    for number in 0..3 * MEMORY_ACCOUNTS_KEPT_MAX {
        drop(budget.charge_for_client(key(&number.to_string())));
    }
    assert!(budget.0.accounts.lock().len() <= MEMORY_ACCOUNTS_KEPT_MAX);
    assert_eq!(budget.charge_for_client(key("held")).client(), held.client());
}

#[tokio::test]
async fn a_request_waits_for_memory_that_others_release() {
    let budget = RequestMemoryBudget::new(1000);
    let mut held = budget.charge_for_client(key("a"));
    held.resize(500, None).await.unwrap();
    let mut waiting = held.empty_charge();
    let wait = tokio::spawn(async move { waiting.resize(400, None).await.map(|()| waiting.bytes()) });
    tokio::time::sleep(MEMORY_WAIT_MAX / 20).await;
    assert!(!wait.is_finished());
    drop(held);
    assert_eq!(wait.await.unwrap().unwrap(), 400);
}

#[tokio::test]
async fn a_request_over_its_memory_share_is_refused_at_once_and_others_after_a_wait() {
    let budget = RequestMemoryBudget::new(1000);
    let mut held = budget.charge_for_client(key("a"));
    held.resize(500, None).await.unwrap();
    let mut other = held.empty_charge();
    let began = tokio::time::Instant::now();
    let refused = other.resize(501, None).await;
    assert!(matches!(refused, Err(ServingError::MemoryShare { bytes: 501, share_bytes: 500 })), "{refused:?}");
    assert!(began.elapsed() < MEMORY_WAIT_MAX);
    assert!(matches!(other.resize(1, None).await, Err(ServingError::MemoryFull)));
    assert!(began.elapsed() >= MEMORY_WAIT_MAX);
    let (soon, began) = (Instant::now() + Duration::from_millis(1), Instant::now());
    assert!(matches!(other.resize(1, Some(soon)).await, Err(ServingError::MemoryFull)));
    assert!(began.elapsed() < MEMORY_WAIT_MAX, "no longer than the client gave it");
    assert_eq!(budget.used_bytes(), 500, "what is refused is not charged");
}

#[test]
fn charging_from_many_threads_never_passes_the_limit() {
    let budget = RequestMemoryBudget::new(10_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let budget = &budget;
            scope.spawn(move || {
                let mut charge = budget.charge_for_client(key(&thread.to_string()));
                for round in 0..2_000_u64 {
                    if charge.try_resize((round * 7919) % 6_000) {
                        assert!(charge.bytes() <= 5_000);
                    }
                }
            });
        }
    });
    assert_eq!(budget.used_bytes(), 0);
}
