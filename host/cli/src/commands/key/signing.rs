//! `saggar key pair` and `saggar key sign`: signatures of files in the form of minisign.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use saggar_clock::{Clock, SystemClock};
use saggar_store::regular_file;
use saggar_store::signature::{SIGNATURE_BYTES_MAX, SIGNATURE_SUFFIX, SigningKey, VerifyingKey};
use serde::Serialize;

use crate::args::{KeyPairArgs, KeySignArgs};
use crate::atomic_file;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// A key pair as JSON.
#[derive(Serialize)]
struct KeyPairFiles {
    id: String,
    secret_key: String,
    public_key: String,
}

/// A signature as JSON.
#[derive(Serialize)]
struct FileSignature {
    key: String,
    signature: String,
}

pub(super) fn make_key_pair(args: &KeyPairArgs, output: CliOutput) -> Result<(), CliError> {
    let [secret, public] = ["key", "pub"].map(|ending| args.name.with_added_extension(ending));
    let key = SigningKey::generate();
    let id = key.verifying_key().id();
    create_file(&secret, key.to_file().as_bytes(), 0o600)?;
    if let Err(error) = create_file(&public, key.verifying_key().to_file().as_bytes(), 0o644) {
        // A secret key without its public key is of no use, and was made here just now.
        let _ = std::fs::remove_file(&secret);
        return Err(error);
    }
    let (secret_key, public_key) = (secret.display().to_string(), public.display().to_string());
    if output.json {
        output.print_json(&KeyPairFiles { id, secret_key, public_key });
        return Ok(());
    }
    output.print_line(&public_key);
    output.print_note(&format!("Key {id}. {secret_key} is secret: anyone who has it can sign. It has no password."));
    Ok(())
}

pub(super) fn sign_file(args: &KeySignArgs, output: CliOutput) -> Result<(), CliError> {
    let key = read_small_file(&args.secret_key)?;
    let key: SigningKey =
        key.parse().map_err(|error| CliError::invalid(format!("{}: {error}", args.secret_key.display())))?;
    let file = regular_file::read(&args.file, u64::MAX).map_err(|error| read_error(&args.file, &error))?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let signature = key.sign(&file, &name, SystemClock.now_ms());
    let path = signature_path(&args.file);
    let part = atomic_file::partial_path(&path);
    let written = std::fs::write(&part, signature).and_then(|()| std::fs::rename(&part, &path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()))
    })?;
    let path = path.display().to_string();
    if output.json {
        output.print_json(&FileSignature { key: key.verifying_key().id(), signature: path });
    } else {
        output.print_line(&path);
    }
    Ok(())
}

/// Returns the path of a file's signature.
pub(crate) fn signature_path(file: &Path) -> PathBuf {
    file.with_added_extension(SIGNATURE_SUFFIX)
}

/// Returns the public key that an argument means: the key itself, or the file that contains it.
pub(crate) fn read_public_key(text: &str) -> Result<VerifyingKey, CliError> {
    let invalid = |error: &dyn std::fmt::Display| {
        CliError::invalid(format!("{text}: {error}")).with_hint("`saggar key pair NAME` makes a key pair")
    };
    match text.parse::<VerifyingKey>() {
        Ok(key) => Ok(key),
        Err(error) if !Path::new(text).exists() => Err(invalid(&error)),
        Err(_) => read_small_file(Path::new(text))?.parse().map_err(|error| invalid(&error)),
    }
}

/// Reads a key or a signature.
pub(crate) fn read_small_file(path: &Path) -> Result<String, CliError> {
    regular_file::read_to_string(path, SIGNATURE_BYTES_MAX).map_err(|error| read_error(path, &error))
}

/// Returns the error for a file that cannot be read.
pub(crate) fn read_error(path: &Path, error: &io::Error) -> CliError {
    let exit = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::INVALID };
    CliError::new(exit, "no_file", format!("{}: {error}", path.display()))
}

/// Creates a file with this mode. An existing file is never replaced, because it can be a key that is in use.
fn create_file(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CliError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = created.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            CliError::new(exit::CONFLICT, "exists", format!("{} is there already", path.display()))
                .with_hint("choose another name: a key that is replaced can no longer sign")
        }
        _ => CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display())),
    })
}
