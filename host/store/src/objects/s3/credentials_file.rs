//! The file with credentials that Amazon's programs share, `~/.aws/credentials`. It is read again for each request, so
//! credentials that a program renews in the file are used without a restart.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use parking_lot::Mutex;

use crate::limits::CREDENTIALS_FILE_BYTES_MAX;
use crate::regular_file;

/// A section of a file with credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CredentialsFile {
    path: PathBuf,
    profile: String,
}

impl CredentialsFile {
    /// Returns the file that `AWS_SHARED_CREDENTIALS_FILE` names, or that of the user if it has the section of
    /// `AWS_PROFILE`, which is `default` if it is not set. `None` if the user has no file or no such section, and none
    /// of the two variables is set.
    ///
    /// # Errors
    /// Returns a sentence if the file cannot be read.
    pub(super) fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<CredentialsFile>, String> {
        let (named, profile) = (variable("AWS_SHARED_CREDENTIALS_FILE"), variable("AWS_PROFILE"));
        let is_wanted = named.is_some() || profile.is_some();
        let users = || variable("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
        let Some(path) = named.map(PathBuf::from).or_else(users) else { return Ok(None) };
        let file = CredentialsFile { path, profile: profile.unwrap_or_else(|| "default".to_owned()) };
        if is_wanted || (file.path.is_file() && file.read().is_ok()) { Ok(Some(file)) } else { Ok(None) }
    }

    /// Reads the credentials.
    fn read(&self) -> Result<AwsCredential, String> {
        let (path, profile) = (self.path.display(), &self.profile);
        let text = regular_file::read_to_string(&self.path, CREDENTIALS_FILE_BYTES_MAX);
        let text = text.map_err(|error| format!("the file of credentials {path}: {error}"))?;
        parse_section(&text, profile).ok_or_else(|| {
            format!(
                "{path} has no aws_access_key_id and aws_secret_access_key in its section [{profile}]: add them, or set \
                 AWS_PROFILE to another section"
            )
        })
    }
}

/// Returns the credentials in a section.
fn parse_section(text: &str, profile: &str) -> Option<AwsCredential> {
    let mut is_inside = false;
    let (mut key_id, mut secret_key, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_inside = name.trim() == profile;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_inside) {
            let value = Some(value.trim().to_owned());
            match name.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    Some(AwsCredential { key_id: key_id?, secret_key: secret_key?, token })
}

/// The credentials in a file, as they are at the time of a request.
#[derive(Debug)]
pub(super) struct FileCredentials {
    file: CredentialsFile,
    /// Those that were read last, which are used while another program writes the file.
    last: Mutex<Arc<AwsCredential>>,
}

impl FileCredentials {
    /// Reads the file.
    ///
    /// # Errors
    /// Returns a sentence if it cannot be read or lacks the section.
    pub(super) fn read(file: CredentialsFile) -> Result<FileCredentials, String> {
        let last = Mutex::new(Arc::new(file.read()?));
        Ok(FileCredentials { file, last })
    }
}

#[async_trait]
impl CredentialProvider for FileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.last.lock();
        match self.file.read() {
            Ok(read) if read != **last => *last = Arc::new(read),
            Ok(_) => {}
            Err(reason) => tracing::warn!("{reason}; the credentials read before are used"),
        }
        Ok(Arc::clone(&last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# comment\n[default]\naws_access_key_id = A\naws_secret_access_key=S=/+\n\n[lab]\n\
                        aws_access_key_id = B\naws_secret_access_key = T\naws_session_token = token\nregion = eu\n\n[empty]\n";

    #[test]
    fn a_section_has_a_key_a_secret_and_possibly_a_token() {
        let credential = |key_id: &str, secret_key: &str, token: Option<&str>| {
            let token = token.map(str::to_owned);
            Some(AwsCredential { key_id: key_id.to_owned(), secret_key: secret_key.to_owned(), token })
        };
        assert_eq!(parse_section(TEXT, "default"), credential("A", "S=/+", None));
        assert_eq!(parse_section(TEXT, "lab"), credential("B", "T", Some("token")));
        assert_eq!(parse_section(TEXT, "empty"), None);
        assert_eq!(parse_section(TEXT, "other"), None);
    }

    #[tokio::test]
    async fn credentials_renewed_in_the_file_are_used_for_the_next_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials");
        std::fs::write(&path, TEXT).unwrap();
        let named = path.to_str().unwrap().to_owned();
        let variable = |name: &str| match name {
            "AWS_SHARED_CREDENTIALS_FILE" => Some(named.clone()),
            "AWS_PROFILE" => Some("lab".to_owned()),
            _ => None,
        };
        let file = CredentialsFile::find(&variable).unwrap().unwrap();
        let credentials = FileCredentials::read(file).unwrap();
        assert_eq!(credentials.get_credential().await.unwrap().key_id, "B");
        std::fs::write(&path, TEXT.replace("= B", "= C")).unwrap();
        assert_eq!(credentials.get_credential().await.unwrap().key_id, "C");
        std::fs::write(&path, "").unwrap();
        assert_eq!(credentials.get_credential().await.unwrap().key_id, "C");
    }

    #[test]
    fn a_named_file_or_section_must_exist_and_the_users_need_not() {
        let home = tempfile::tempdir().unwrap();
        let of_home = home.path().to_str().unwrap().to_owned();
        let with_home = |name: &str| (name == "HOME").then(|| of_home.clone());
        assert_eq!(CredentialsFile::find(&with_home), Ok(None));
        let with_profile = |name: &str| if name == "AWS_PROFILE" { Some("lab".to_owned()) } else { with_home(name) };
        let file = CredentialsFile::find(&with_profile).unwrap().unwrap();
        let reason = FileCredentials::read(file).unwrap_err();
        assert!(reason.contains(".aws/credentials"), "{reason}");
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), "[default]\n").unwrap();
        assert_eq!(CredentialsFile::find(&with_home), Ok(None));
        let file = CredentialsFile::find(&with_profile).unwrap().unwrap();
        let reason = FileCredentials::read(file).unwrap_err();
        assert!(reason.contains("section [lab]") && reason.contains("AWS_PROFILE"), "{reason}");
    }
}
