//! Who a server is among those that share records, and which storage its files are in.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::durable;
use crate::error::StoreError;
use crate::objects::ObjectStorage;
use crate::records::ServerIdentity;
use crate::state_dir::StateDir;

/// The file with the identifier of a state directory.
const SERVER_ID_FILE: &str = "server-id";
/// The file with the identifier of a directory that servers can share.
const STORAGE_ID_FILE: &str = ".storage-id";
/// Maximum bytes of either, and of a server's name.
const NAME_BYTES_MAX: usize = 64;

/// Returns the identity of the server with this state directory, directory of models and store of objects, and creates the
/// files that make it stable. Call it while the lock of the state directory is held. Without a name, it is that of the
/// host with a part of the identifier.
///
/// # Errors
/// Returns `Io` if a file cannot be read or written.
pub fn server_identity(
    home: &StateDir,
    models: &Path,
    objects: &ObjectStorage,
    name: Option<&str>,
) -> Result<ServerIdentity, StoreError> {
    let id = read_or_create(&home.root().join(SERVER_ID_FILE))?;
    let storage = match objects.bucket_identity() {
        // Everything that a job needs is in it.
        Some(bucket) => bucket.to_owned(),
        None => {
            // A job needs all of them: a server that has only some of its files cannot run it.
            let mut storage = String::new();
            for directory in [home.objects().as_path(), &home.datasets(), &home.jobs(), models] {
                storage += &read_or_create(&directory.join(STORAGE_ID_FILE))?;
            }
            storage
        }
    };
    let storage = Digest::of(storage.as_bytes()).hex()[..16].to_owned();
    let name = name.map_or_else(|| format!("{}-{}", host_name(), &id[..6.min(id.len())]), str::to_owned);
    Ok(ServerIdentity { name, id, storage })
}

/// Returns whether a text can be the name of a server: letters, digits, `.`, `_` and `-`.
pub fn is_server_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = name.trim().split('.').next().unwrap_or_default();
    if is_server_name(first) { first.to_owned() } else { "host".to_owned() }
}

/// Returns the text of a file, which is created with a random one if it does not exist. Of several servers that create
/// it, all get the text of one.
fn read_or_create(path: &Path) -> Result<String, StoreError> {
    loop {
        match File::open(path) {
            Ok(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(StoreError::io(path))?;
                let text = text.trim();
                if is_server_name(text) {
                    return Ok(text.to_owned());
                }
                let error = std::io::Error::other("it does not contain an identifier; remove it if it is damaged");
                return Err(StoreError::io(path)(error));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => create_whole(path)?,
            Err(error) => return Err(StoreError::io(path)(error)),
        }
    }
}

/// Creates a file with a random identifier, unless it exists meanwhile. Nobody sees a part of it.
fn create_whole(path: &Path) -> Result<(), StoreError> {
    let draft = PathBuf::from(format!("{}.{}", path.display(), durable::random_hex::<8>()));
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(durable::PRIVATE_FILE_MODE).open(&draft)?;
        writeln!(file, "{}", durable::random_hex::<8>())?;
        file.sync_all()?;
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => std::fs::remove_file(&draft),
        }
    };
    write().map_err(StoreError::io(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::objects::S3Settings;

    #[test]
    fn a_server_keeps_its_identity_and_shares_that_of_its_storage() {
        let root = tempfile::tempdir().unwrap();
        let open = |name: &str| StateDir::open(root.path().join(name)).unwrap();
        let first = open("a");
        let local = |home: &StateDir| ObjectStorage::local(&home.objects()).unwrap();
        let identity = |home: &StateDir| server_identity(home, &home.models(), &local(home), None).unwrap();
        let a = identity(&first);
        assert_eq!(identity(&first), a);
        assert!(a.name.ends_with(&a.id[..6]) && is_server_name(&a.name), "{}", a.name);
        let alone = identity(&open("b"));
        assert!(alone.id != a.id && alone.storage != a.storage && alone.name != a.name);
        // All four directories have to be shared.
        std::fs::create_dir(root.path().join("c")).unwrap();
        for (at, directory) in ["objects", "datasets", "jobs", "models"].into_iter().enumerate() {
            let place = root.path().join("c").join(directory);
            let _ = std::fs::remove_dir_all(&place);
            symlink(root.path().join("a").join(directory), place).unwrap();
            assert_eq!(identity(&open("c")).storage == a.storage, at == 3, "{directory}");
        }
        assert_ne!(identity(&open("c")).id, a.id);
        // With a bucket, no directory is shared.
        let bucket = |home: &StateDir, endpoint: &str, address: &str| {
            let variable = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| endpoint.to_owned());
            let bucket = ObjectStorage::open_bucket(S3Settings::read(address, &variable).unwrap()).unwrap();
            server_identity(home, &home.models(), &bucket, None).unwrap().storage
        };
        let storage = bucket(&first, "https://one", "s3://models/x");
        assert_eq!(bucket(&open("b"), "https://one/", "s3://models/x"), storage);
        assert_ne!(bucket(&open("b"), "https://two", "s3://models/x"), storage);
        assert_ne!(bucket(&open("b"), "https://one", "s3://models/y"), storage);
        assert_ne!(a.storage, storage);
        let named = server_identity(&first, &first.models(), &local(&first), Some("gpu-1")).unwrap();
        assert_eq!((named.name.as_str(), named.id), ("gpu-1", a.id));
    }

    #[test]
    fn a_damaged_identifier_is_named() {
        let root = tempfile::tempdir().unwrap();
        let home = StateDir::open(root.path()).unwrap();
        std::fs::write(home.root().join(SERVER_ID_FILE), "two words").unwrap();
        let objects = ObjectStorage::local(&home.objects()).unwrap();
        let error = server_identity(&home, &home.models(), &objects, None).unwrap_err().to_string();
        assert!(error.contains("server-id") && error.contains("remove it"), "{error}");
    }
}
