//! Writes objects to a bucket, and compares what is there with what was written.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::try_join_all;

use super::MigrationError;
use super::bucket_content::list_all;
use super::content::{ContentItem, ContentLedger, ContentPlan};
use crate::digest::Digest;
use crate::error::StoreError;
use crate::objects::{BlockingObjects, MIGRATION_MARK};

/// Requests at the same time.
const REQUESTS_MAX: usize = 16;
/// Bytes in memory at the same time, unless one object has more.
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// Returns groups of things that are sent or read together. `bytes_of` returns the bytes of one.
fn batches<T>(things: &[T], bytes_of: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let (mut groups, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (at, thing) in things.iter().enumerate() {
        if at > first && (at - first == REQUESTS_MAX || bytes + bytes_of(thing) > BATCH_BYTES_MAX) {
            groups.push(&things[first..at]);
            (first, bytes) = (at, 0);
        }
        bytes += bytes_of(thing);
    }
    if first < things.len() {
        groups.push(&things[first..]);
    }
    groups
}

/// Writes the objects of a plan, and records each in the ledger. Objects of `existing`, by name and size, that an earlier
/// attempt wrote are kept if they are right.
///
/// # Errors
/// Returns any error of the files and the store.
pub(super) fn write(
    bucket: &BlockingObjects,
    plan: &ContentPlan,
    existing: &BTreeMap<String, u64>,
    ledger: &mut ContentLedger,
    done: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    for batch in batches(&plan.items, ContentItem::bytes) {
        let mut sent = Vec::new();
        for item in batch {
            let content = match &item.pieces[..] {
                [one] => one.read(bucket)?,
                pieces => {
                    let pieces = pieces.iter().map(|piece| piece.read(bucket)).collect::<Result<Vec<_>, _>>()?;
                    pieces.concat().into()
                }
            };
            let sha256 = Digest::of(&content);
            ledger.0.insert(item.target.clone(), (item.kind, content.len() as u64, sha256));
            sent.push((item.target.clone(), content, sha256));
        }
        let bytes = sent.iter().map(|(_, content, _)| content.len() as u64).sum();
        let is_there = |name: &String, content: &Bytes| existing.get(name) == Some(&(content.len() as u64));
        let sent: Vec<_> = sent
            .into_iter()
            .map(|(name, content, sha256)| (is_there(&name, &content), name, content, sha256))
            .collect();
        bucket.wait(|objects| async move {
            let put = sent.into_iter().map(|(is_there, name, content, sha256)| {
                let objects = objects.clone();
                async move {
                    if is_there && objects.get_verified(&name, &sha256).await.is_ok() {
                        return Ok(());
                    }
                    objects.replace(&name, content.into()).await
                }
            });
            try_join_all(put).await.map(drop)
        })?;
        done(bytes);
    }
    Ok(())
}

/// Reads every object of a bucket and compares it with the ledger. Removes objects that are not in it, which an interrupted
/// attempt wrote.
///
/// # Errors
/// Returns `Differs`; `Store`.
pub(super) fn verify(
    bucket: &BlockingObjects,
    ledger: &ContentLedger,
    done: &mut dyn FnMut(u64),
) -> Result<(), MigrationError> {
    for object in list_all(bucket)? {
        if !ledger.0.contains_key(&object.name) && object.name != MIGRATION_MARK {
            bucket.wait(|objects| async move { objects.delete(&object.name).await })?;
        }
    }
    let names: Vec<&String> = ledger.0.keys().collect();
    for batch in batches(&names, |name| ledger.0[*name].1) {
        let wanted: Vec<String> = batch.iter().map(|name| (*name).clone()).collect();
        let read = bucket.wait(|objects| async move {
            let digest = |name: String| {
                let objects = objects.clone();
                async move {
                    let content = objects.find(&name).await?;
                    Ok::<_, StoreError>(content.map(|content| (content.len() as u64, Digest::of(&content))))
                }
            };
            try_join_all(wanted.into_iter().map(digest)).await
        })?;
        for (name, found) in batch.iter().zip(read) {
            let (_, bytes, sha256) = ledger.0[*name];
            check(&format!("object {name}"), (bytes, sha256), found)?;
            done(bytes);
        }
    }
    Ok(())
}

/// Returns `Differs` if the bytes and the digest of the destination are not those of the source.
pub(super) fn check(what: &str, expected: (u64, Digest), found: Option<(u64, Digest)>) -> Result<(), MigrationError> {
    if found == Some(expected) {
        return Ok(());
    }
    let describe = |(bytes, sha256): (u64, Digest)| format!("{bytes} bytes with SHA-256 {sha256}");
    let found = found.map_or_else(|| "nothing".to_owned(), describe);
    Err(MigrationError::Differs { what: what.to_owned(), expected: describe(expected), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_few_things_and_few_bytes() {
        let check = |bytes: &[u64], expected: &[usize]| {
            let sizes: Vec<usize> = batches(bytes, |bytes| *bytes).iter().map(|group| group.len()).collect();
            assert_eq!(sizes, expected, "{bytes:?}");
        };
        check(&[], &[]);
        check(&[1; 20], &[16, 4]);
        check(&[BATCH_BYTES_MAX, 1, BATCH_BYTES_MAX - 1, 1], &[1, 2, 1]);
        check(&[2 * BATCH_BYTES_MAX, 2 * BATCH_BYTES_MAX], &[1, 1]);
    }
}
