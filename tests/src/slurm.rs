//! A cluster of Slurm on this machine: a controller, and a daemon for each node.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Nodes, each with two processors.
const NODES: u16 = 2;
/// Time until all nodes are idle.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// A cluster with the partitions `spot`, whose jobs are preempted by those of `dedicated`. Its daemons are killed when it is
/// dropped.
#[derive(Debug)]
pub struct SlurmCluster {
    directory: TempDir,
    munged: Child,
    controller: Child,
    nodes: Vec<Option<Child>>,
}

impl SlurmCluster {
    /// Starts a cluster, or prints SKIP and returns `None` if Slurm is not installed.
    ///
    /// # Panics
    /// If it is not installed and `REQUIRE_ALL` is set, or does not start.
    pub fn start() -> Option<SlurmCluster> {
        let is_installed = ["slurmctld", "slurmd", "munged", "sbatch"].iter().all(|program| has_program(program));
        if !is_installed {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "Slurm is not installed, and REQUIRE_ALL is set");
            #[expect(clippy::print_stdout, reason = "a skipped test says so")]
            {
                println!("SKIP: Slurm is not installed");
            }
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let root = directory.path();
        for folder in ["munge", "state", "spool", "log"] {
            std::fs::create_dir(root.join(folder)).expect("the directory is new");
        }
        std::fs::write(root.join("slurm.conf"), configuration(root)).expect("the directory is writable");
        let munged = start_munged(root);
        let controller = start_controller(root);
        let mut cluster = SlurmCluster { directory, munged, controller, nodes: Vec::new() };
        cluster.nodes = (1..=NODES).map(|node| Some(cluster.start_node(node))).collect();
        cluster.wait_until_idle();
        Some(cluster)
    }

    fn start_node(&self, node: u16) -> Child {
        let name = format!("n{node}");
        let mut command = Command::new("slurmd");
        command.args(["-D", "-N", &name, "-f"]).arg(self.configuration());
        spawn(&mut command, self.directory.path(), &name)
    }

    /// Returns the file to which the variable `SLURM_CONF` points.
    pub fn configuration(&self) -> PathBuf {
        self.directory.path().join("slurm.conf")
    }

    /// Runs a command of Slurm and returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).env("SLURM_CONF", self.configuration()).output();
        let output = output.expect("Slurm is installed");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Returns the node, from 1, that runs a batch job with this name, or `None`.
    pub fn node_of(&self, name: &str) -> Option<u16> {
        let node = self.run("squeue", &["--noheader", "--states=RUNNING", "--format=%N", "--name", name]);
        node.strip_prefix('n')?.parse().ok()
    }

    /// Kills the daemon of a node at once, and the processes that `is_its` names, as if the machine was lost.
    ///
    /// # Panics
    /// If the daemon does not run.
    pub fn kill_node(&mut self, node: u16, processes: &[u32]) {
        let mut daemon = self.nodes[usize::from(node - 1)].take().expect("it runs");
        daemon.kill().expect("it runs");
        daemon.wait().expect("it is ours");
        for pid in processes {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }

    /// Stops the controller, which saves its state. A killed one can forget the jobs of the last seconds.
    ///
    /// # Panics
    /// If it does not run.
    pub fn stop_controller(&mut self) {
        run(Command::new("kill").args(["-TERM", &self.controller.id().to_string()]));
        self.controller.wait().expect("it is ours");
    }

    /// Starts the controller again, with the state that the previous one has saved.
    pub fn restart_controller(&mut self) {
        self.controller = start_controller(self.directory.path());
    }

    fn wait_until_idle(&self) {
        let began = Instant::now();
        loop {
            let listed = Command::new("sinfo")
                .args(["--noheader", "--Node", "--partition=spot", "--format=%T"])
                .env("SLURM_CONF", self.configuration())
                .output()
                .expect("Slurm is installed");
            let states = String::from_utf8_lossy(&listed.stdout).into_owned();
            if states.lines().filter(|state| state.trim() == "idle").count() == usize::from(NODES) {
                return;
            }
            assert!(began.elapsed() < START_TIME_MAX, "the nodes are not idle: {states}; {}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the logs of all daemons.
    pub fn logs(&self) -> String {
        let files = std::fs::read_dir(self.directory.path().join("log")).into_iter().flatten().flatten();
        files.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        let _ = Command::new("scancel").args(["--user=root"]).env("SLURM_CONF", self.configuration()).output();
        let daemons = self.nodes.iter_mut().flatten().chain([&mut self.controller, &mut self.munged]);
        for daemon in daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn has_program(name: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", name]).status();
    found.is_ok_and(|status| status.success())
}

fn start_controller(root: &Path) -> Child {
    spawn(Command::new("slurmctld").arg("-D").arg("-f").arg(root.join("slurm.conf")), root, "slurmctld")
}

/// Starts the daemon that signs messages, with a key and a socket of this cluster.
fn start_munged(root: &Path) -> Child {
    let folder = root.join("munge");
    let file = |name: &str| folder.join(name).display().to_string();
    run(Command::new("chmod").arg("755").arg(root));
    run(Command::new("mungekey").args(["--create", "--keyfile", &file("key")]));
    run(Command::new("chown").args(["-R", "munge:munge"]).arg(&folder));
    run(Command::new("chmod").arg("755").arg(&folder));
    let mut command = Command::new("runuser");
    command.args([
        "-u",
        "munge",
        "--",
        "munged",
        "--foreground",
        "--key-file",
        &file("key"),
        "--socket",
        &file("socket"),
    ]);
    command.args(["--pid-file", &file("pid"), "--log-file", &file("log"), "--seed-file", &file("seed")]);
    let munged = spawn(&mut command, root, "munged");
    let began = Instant::now();
    while !folder.join("socket").exists() {
        assert!(began.elapsed() < START_TIME_MAX, "munged does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    munged
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn spawn(command: &mut Command, root: &Path, name: &str) -> Child {
    let log = std::fs::File::create(root.join("log").join(format!("{name}.out"))).expect("the directory is writable");
    let errors = log.try_clone().expect("a file can be cloned");
    command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("the daemon is installed")
}

/// Returns ports of this machine, one after the other, that were free.
fn free_ports(count: u16) -> u16 {
    for first in (21_000..40_000).step_by(usize::from(count)).skip(std::process::id() as usize % 4_000) {
        let bound: Vec<_> =
            (first..first + count).map_while(|port| TcpListener::bind(("127.0.0.1", port)).ok()).collect();
        if bound.len() == usize::from(count) {
            return first;
        }
    }
    panic!("there are no free ports");
}

fn configuration(root: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (host, port, root) = (host.trim(), free_ports(NODES + 1), root.display());
    let (first, last) = (port + 1, port + NODES);
    format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={root}/munge/socket,cred_expire=5\nCryptoType=crypto/munge\n\
         SlurmctldPort={port}\nStateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool/%n\n\
         SlurmctldPidFile={root}/log/slurmctld.pid\nSlurmdPidFile={root}/log/%n.pid\n\
         SlurmctldLogFile={root}/log/slurmctld.log\nSlurmdLogFile={root}/log/%n.log\n\
         ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nJobRequeue=1\n\
         KillWait=30\nSlurmdTimeout=15\nSlurmctldTimeout=10\nInactiveLimit=0\nReturnToService=2\n\
         SchedulerParameters=sched_interval=1,bf_interval=1\nMailProg=/bin/true\n\
         NodeName=n[1-{NODES}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 RealMemory=2000 State=UNKNOWN\n\
         PartitionName=spot Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=5 Default=YES\n\
         PartitionName=dedicated Nodes=ALL PriorityTier=10 PreemptMode=OFF\n"
    )
}
