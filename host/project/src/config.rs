//! The user's configuration, `~/.config/saggar/config.toml`: defaults for settings that neither flags, environment nor
//! project file give.

use core::time::Duration;

use toml::de::DeTable;

use crate::diagnostic::Diagnostics;
use crate::manifest::is_device_name;
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::ParseReport;

/// A user's settings for all projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserConfig {
    /// Address of the server.
    pub host: Option<String>,
    /// Path of the certificate to trust.
    pub ca: Option<String>,
    /// The device that jobs compute on.
    pub device: Option<String>,
    /// The project of jobs that are submitted outside of a project's directory.
    pub project: Option<String>,
    /// The table `[top]`.
    pub top: TopSection,
}

/// Defaults of `saggar top`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopSection {
    /// Addresses of the servers; empty if not given.
    pub hosts: Vec<String>,
    /// The time between refreshes.
    pub interval: Option<Duration>,
    /// The visible time.
    pub window: Option<Duration>,
    /// The charted series, as on the command line; empty if not given.
    pub series: Vec<String>,
    /// Address of a Prometheus server.
    pub prometheus: Option<String>,
}

impl UserConfig {
    /// Parses the file.
    ///
    /// # Errors
    /// Every mistake with its position.
    pub fn parse(text: &str) -> Result<UserConfig, Diagnostics> {
        let report = ParseReport::new(text);
        let (document, broken) = DeTable::parse_recoverable(text);
        for error in &broken {
            let span = error.span().unwrap_or(0..0);
            report.add_error(&span, error.message().trim(), "TOML is written as in: host = \"http://127.0.0.1:5000\"");
        }
        let config = match broken.is_empty() {
            true => read_user_config(&ManifestTable::root(document.get_ref(), &report)),
            false => UserConfig::default(),
        };
        match report.into_mistakes() {
            mistakes if mistakes.is_empty() => Ok(config),
            mistakes => Err(Diagnostics(mistakes)),
        }
    }
}

fn read_user_config(root: &ManifestTable<'_>) -> UserConfig {
    let config = UserConfig {
        host: root.optional("host", read_address),
        ca: root.optional("ca", |item| item.string()),
        device: root.optional("device", |item| match item.text()? {
            device if is_device_name(device) => Some(device.to_owned()),
            _ => item.report_expected("auto, cpu, gpu or a device's name such as vulkan:0"),
        }),
        project: root.optional("project", |item| item.name()),
        top: root.optional("top", |item| Some(read_top_section(&item.table()?))).unwrap_or_default(),
    };
    root.report_unknown_keys();
    config
}

fn read_top_section(table: &ManifestTable<'_>) -> TopSection {
    let section = TopSection {
        hosts: table.optional("hosts", |item| item.list(read_address)).unwrap_or_default(),
        interval: table.optional("interval", |item| item.duration()),
        window: table.optional("window", |item| item.duration()),
        series: table.optional("series", |item| item.list(ManifestValue::string)).unwrap_or_default(),
        prometheus: table.optional("prometheus", read_address),
    };
    table.report_unknown_keys();
    section
}

fn read_address(item: &ManifestValue<'_>) -> Option<String> {
    match item.text()? {
        host if host.starts_with("http://") || host.starts_with("https://") => Some(host.to_owned()),
        _ => item.report_expected("an address such as \"http://127.0.0.1:5000\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_config_keys_are_optional_and_unknown_keys_are_refused() {
        assert_eq!(UserConfig::parse("").unwrap(), UserConfig::default());
        let config = UserConfig::parse("host = \"http://box:5000\"\ndevice = \"cpu\"").unwrap();
        assert_eq!((config.host.as_deref(), config.device.as_deref()), (Some("http://box:5000"), Some("cpu")));
        let refused = UserConfig::parse("hots = \"x\"\nhost = 5").unwrap_err().render("config.toml");
        assert!(
            refused.contains("config.toml:1:1: unknown key \"hots\"") && refused.contains("did you mean \"host\"?")
        );
        assert!(refused.contains("config.toml:2:8: host: expected a text"), "{refused}");
    }
    #[test]
    fn defaults_of_top_are_a_table() {
        let text = "[top]\nhosts = [\"http://a:5000\"]\ninterval = \"500ms\"\nwindow = \"2h\"\nseries = [\"loss\"]";
        let top = UserConfig::parse(text).unwrap().top;
        assert_eq!((top.hosts, top.series), (vec!["http://a:5000".to_owned()], vec!["loss".to_owned()]));
        assert_eq!((top.interval, top.window), (Some(Duration::from_millis(500)), Some(Duration::from_secs(7200))));
        let refused = UserConfig::parse("[top]\nintervall = \"2s\"\nwindow = 5\nhosts = [\"a\"]").unwrap_err();
        let refused = refused.render("config.toml");
        for words in ["did you mean \"interval\"?", "top.window: expected a time", "top.hosts[0]: expected an address"]
        {
            assert!(refused.contains(words), "{refused}");
        }
    }
}
