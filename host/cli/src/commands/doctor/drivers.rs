//! Finds out why a GPU cannot be used through Vulkan on Linux: the loader, the driver manifests, the libraries that
//! they name, and the hardware access of a container or user. No library is loaded, so nothing can hang.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::{DoctorFinding, FindingState};

/// The Vulkan loader's library.
const LOADER: &str = "libvulkan.so.1";
/// The system directories of driver manifests, searched after the user's: the loader's own list (Vulkan loader,
/// LoaderDriverInterface).
const DRIVER_DIRECTORIES: [&str; 4] =
    ["etc/vulkan/icd.d", "usr/local/etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d"];
/// Directories of libraries that the linker's cache does not list.
const LIBRARY_DIRECTORIES: [&str; 6] =
    ["lib", "usr/lib", "usr/lib64", "usr/local/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"];

/// The libraries of glvnd that NVIDIA's Vulkan driver loads.
const GLVND_LIBRARIES: [&str; 3] = ["libGLdispatch.so.0", "libGLX.so.0", "libEGL.so.1"];

/// A driver manifest, as far as it is checked. Source: Vulkan loader, LoaderDriverInterface.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DriverManifest {
    #[serde(rename = "ICD")]
    icd: DriverSection,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DriverSection {
    /// The path of the driver's library, relative to the manifest, or a name for the dynamic linker.
    library_path: Option<String>,
}

/// The environment of the checks.
#[derive(Debug)]
struct DriverEnvironment {
    /// The root directory: `/`, except in tests.
    root: PathBuf,
    /// The libraries in the dynamic linker's cache.
    linker_cache: String,
    /// `VK_DRIVER_FILES`, or its older name: manifests that replace those in directories.
    named_files: Option<String>,
    /// `LD_LIBRARY_PATH`.
    library_path: Option<String>,
    /// The user's data directory.
    data_home: Option<PathBuf>,
}

/// Checks the loader and the drivers of this machine, and access to the hardware.
pub(super) fn check_drivers() -> Vec<DoctorFinding> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let machine = DriverEnvironment {
        root: PathBuf::from("/"),
        linker_cache: cached_libraries(),
        named_files: variable("VK_DRIVER_FILES").or_else(|| variable("VK_ICD_FILENAMES")),
        library_path: variable("LD_LIBRARY_PATH"),
        data_home: variable("XDG_DATA_HOME").map(PathBuf::from).or_else(home),
    };
    machine.findings()
}

/// Returns the dynamic linker's cache as text, or an empty text if there is no cache.
fn cached_libraries() -> String {
    let list = |program: &str| Command::new(program).arg("-p").output().ok();
    let listed = list("ldconfig").or_else(|| list("/sbin/ldconfig"));
    listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

impl DriverEnvironment {
    fn findings(&self) -> Vec<DoctorFinding> {
        if !self.has_library(LOADER) {
            let what = format!("{LOADER}, which finds Vulkan drivers, is not here: no GPU is usable");
            let hint = "install libvulkan1 (Debian, Ubuntu), vulkan-loader (Fedora) or vulkan-icd-loader (Arch)";
            return [
                Some(DoctorFinding::new("loader", FindingState::Missing, what).with_hint(hint)),
                self.check_nvidia(&[]),
                self.check_render_nodes(),
            ]
            .into_iter()
            .flatten()
            .collect();
        }
        let files = self.driver_files();
        let looked: Vec<Result<String, DoctorFinding>> =
            files.iter().map(|file| self.check_driver_file(file)).collect();
        let (usable, broken): (Vec<_>, Vec<_>) = looked.into_iter().partition(Result::is_ok);
        let usable: Vec<String> = usable.into_iter().flatten().collect();
        let summary = match (&usable[..], &self.named_files) {
            ([], Some(files)) => {
                DoctorFinding::new("drivers", FindingState::Missing, format!("VK_DRIVER_FILES names none: {files}"))
                    .with_hint("correct the variable, or unset it")
            }
            ([], None) => DoctorFinding::new("drivers", FindingState::Missing, "no file names a Vulkan driver")
                .with_hint("install the GPU's driver; without a GPU, mesa-vulkan-drivers runs that path in software"),
            (names, _) => DoctorFinding::new("drivers", FindingState::Ok, names.join(", ")),
        };
        let broken = broken.into_iter().filter_map(Result::err);
        let nvidia = self.check_nvidia(&usable).into_iter().chain(self.check_glvnd(&usable));
        [summary].into_iter().chain(broken).chain(nvidia).chain(self.check_render_nodes()).collect()
    }

    /// Returns the driver manifests, in the loader's order.
    fn driver_files(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named_files {
            return std::env::split_paths(named).collect();
        }
        let own = self.data_home.iter().map(|data| data.join("vulkan/icd.d"));
        let directories = own.chain(DRIVER_DIRECTORIES.map(|directory| self.root.join(directory)));
        let mut files = Vec::new();
        for directory in directories {
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            let mut here: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            here.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
            here.sort();
            files.extend(here);
        }
        files
    }

    /// Returns the library that a driver manifest names, if it exists.
    fn check_driver_file(&self, file: &Path) -> Result<String, DoctorFinding> {
        let broken =
            |what: String| DoctorFinding::new("driver", FindingState::Missing, format!("{}: {what}", file.display()));
        let reinstall = "install the driver again, or remove the file";
        let text = std::fs::read_to_string(file).map_err(|error| broken(error.to_string()).with_hint(reinstall))?;
        let manifest: DriverManifest = serde_json::from_str(&text)
            .map_err(|error| broken(format!("it is not the JSON that it should be: {error}")).with_hint(reinstall))?;
        let Some(library) = manifest.icd.library_path.as_deref() else {
            return Err(broken("it names no library at ICD.library_path".to_owned()).with_hint(reinstall));
        };
        let is_there = match library.strip_prefix('/') {
            Some(path) => self.root.join(path).exists(),
            None if library.contains('/') => file.parent().is_some_and(|directory| directory.join(library).exists()),
            None => self.has_library(library),
        };
        if is_there {
            let name = Path::new(library).file_name().map(|name| name.to_string_lossy().into_owned());
            return Ok(name.unwrap_or_else(|| library.to_owned()));
        }
        Err(broken(format!("it names {library}, which is not here")).with_hint(reinstall))
    }

    /// Finds an NVIDIA GPU whose kernel driver exists but whose Vulkan driver does not, as in a container that was
    /// started without the graphics capability.
    fn check_nvidia(&self, usable: &[String]) -> Option<DoctorFinding> {
        let kernel = ["proc/driver/nvidia/version", "dev/nvidiactl"].map(|path| self.root.join(path).exists());
        if !kernel.contains(&true) || usable.iter().any(|library| library.contains("nvidia") || library.contains("GLX"))
        {
            return None;
        }
        let what = "an NVIDIA GPU's kernel driver is here, and its Vulkan driver (libGLX_nvidia.so.0) is not";
        let hint = "in a container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics; \
                    elsewhere, install the driver's graphics libraries";
        Some(DoctorFinding::new("nvidia", FindingState::Missing, what).with_hint(hint))
    }

    /// Finds an NVIDIA driver without the libraries of glvnd that it loads. Such a driver lists no GPU.
    fn check_glvnd(&self, usable: &[String]) -> Option<DoctorFinding> {
        usable.iter().find(|library| library.contains("nvidia"))?;
        let missing: Vec<&str> = GLVND_LIBRARIES.into_iter().filter(|name| !self.has_library(name)).collect();
        if missing.is_empty() {
            return None;
        }
        let what = format!("NVIDIA's Vulkan driver loads {}, which is not here", missing.join(" and "));
        let hint = "install libglvnd0, libglx0 and libegl1 (Debian, Ubuntu) or libglvnd (Fedora, Arch)";
        Some(DoctorFinding::new("nvidia", FindingState::Missing, what).with_hint(hint))
    }

    /// Finds a GPU that this user has no permission to open.
    fn check_render_nodes(&self) -> Option<DoctorFinding> {
        let entries = std::fs::read_dir(self.root.join("dev/dri")).ok()?;
        let nodes = entries.flatten().map(|entry| entry.path());
        let is_render =
            |node: &PathBuf| node.file_name().is_some_and(|name| name.to_string_lossy().starts_with("renderD"));
        let denied = |node: &PathBuf| {
            let opened = std::fs::OpenOptions::new().read(true).write(true).open(node);
            opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
        };
        let node = nodes.filter(is_render).find(denied)?;
        let what = format!("{} may not be opened by this user", node.display());
        Some(
            DoctorFinding::new("render", FindingState::Missing, what)
                .with_hint("add the user to the group render, and log in again"),
        )
    }

    fn has_library(&self, name: &str) -> bool {
        // A line of the cache: `libvulkan.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libvulkan.so.1`.
        let cached = self.linker_cache.lines().any(|line| line.split_whitespace().next() == Some(name));
        let named = self.library_path.iter().flat_map(std::env::split_paths);
        let standard = LIBRARY_DIRECTORIES.map(|directory| self.root.join(directory));
        cached || named.chain(standard).any(|directory| directory.join(name).exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a machine without drivers, and its root.
    fn machine() -> (tempfile::TempDir, DriverEnvironment) {
        let root = tempfile::tempdir().unwrap();
        let machine = DriverEnvironment {
            root: root.path().to_owned(),
            linker_cache: String::new(),
            named_files: None,
            library_path: None,
            data_home: None,
        };
        (root, machine)
    }

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Formats findings as lines of name, state and what.
    fn finding_lines(machine: &DriverEnvironment) -> Vec<String> {
        let root = machine.root.display().to_string();
        let line = |finding: DoctorFinding| format!("{} {} {}", finding.name, finding.state.name(), finding.what);
        machine.findings().into_iter().map(|finding| line(finding).replace(&root, "")).collect()
    }

    #[test]
    fn a_missing_vulkan_loader_is_the_only_finding() {
        let (root, machine) = machine();
        write(root.path(), "usr/share/vulkan/icd.d/a.json", "{}");
        let missing = "loader none libvulkan.so.1, which finds Vulkan drivers, is not here: no GPU is usable";
        assert_eq!(finding_lines(&machine), [missing]);
        assert!(machine.findings()[0].hint.as_ref().unwrap().contains("libvulkan1"));
    }

    #[test]
    fn broken_driver_files_are_reported_with_the_reason() {
        let (root, mut machine) = machine();
        machine.linker_cache =
            "\tlibvulkan.so.1 (libc6,x86-64) => /lib/libvulkan.so.1\n\tlibgood.so (libc6) => /x".to_owned();
        let driver = |library: &str| format!(r#"{{"ICD": {{"library_path": "{library}"}}}}"#);
        for (file, text) in [
            ("a", driver("libgood.so")),
            ("b", driver("/usr/lib/libgone.so")),
            ("c", "{".to_owned()),
            ("d", "{}".to_owned()),
            ("e", driver("./libbeside.so")),
        ] {
            write(root.path(), &format!("usr/share/vulkan/icd.d/{file}.json"), &text);
        }
        write(root.path(), "usr/share/vulkan/icd.d/libbeside.so", "");
        let [summary, b, c, d] = &finding_lines(&machine)[..] else { panic!("{:?}", finding_lines(&machine)) };
        assert_eq!(summary, "drivers OK libgood.so, libbeside.so");
        assert_eq!(b, "driver none /usr/share/vulkan/icd.d/b.json: it names /usr/lib/libgone.so, which is not here");
        assert!(c.starts_with("driver none /usr/share/vulkan/icd.d/c.json: it is not the JSON"), "{c}");
        assert_eq!(d, "driver none /usr/share/vulkan/icd.d/d.json: it names no library at ICD.library_path");
    }

    #[test]
    fn a_container_without_the_nvidia_graphics_capability_is_recognized() {
        let (root, mut machine) = machine();
        write(root.path(), "usr/lib/libvulkan.so.1", "");
        write(root.path(), "proc/driver/nvidia/version", "");
        let [drivers, nvidia] = &machine.findings()[..] else { panic!("{:?}", finding_lines(&machine)) };
        assert_eq!((drivers.state, nvidia.name.as_str()), (FindingState::Missing, "nvidia"));
        assert!(nvidia.hint.as_ref().unwrap().contains("NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"));
        // With its driver there is nothing to report.
        write(root.path(), "usr/lib/libGLX_nvidia.so.0", "");
        write(root.path(), "n.json", r#"{"ICD": {"library_path": "libGLX_nvidia.so.0"}}"#);
        machine.named_files = Some(root.path().join("n.json").display().to_string());
        let [drivers, nvidia] = &finding_lines(&machine)[..] else { panic!("{:?}", finding_lines(&machine)) };
        assert_eq!(drivers, "drivers OK libGLX_nvidia.so.0");
        assert!(nvidia.contains("loads libGLdispatch.so.0 and libGLX.so.0 and libEGL.so.1"), "{nvidia}");
        for library in GLVND_LIBRARIES {
            write(root.path(), &format!("usr/lib/{library}"), "");
        }
        assert_eq!(finding_lines(&machine), ["drivers OK libGLX_nvidia.so.0"]);
    }

    #[test]
    fn a_driver_variable_without_a_usable_driver_is_reported() {
        let (root, mut machine) = machine();
        write(root.path(), "usr/lib/libvulkan.so.1", "");
        machine.named_files = Some("/nowhere.json".to_owned());
        let [summary, driver] = &finding_lines(&machine)[..] else { panic!("{:?}", finding_lines(&machine)) };
        assert_eq!(summary, "drivers none VK_DRIVER_FILES names none: /nowhere.json");
        assert!(driver.starts_with("driver none /nowhere.json: "), "{driver}");
    }
}
