//! Network namespaces that stand for machines: each has an address, and its connection can be cut.
//!
//! The test itself runs in a network namespace too, because other programs of this machine, such as browsers, notice a new
//! interface and drop their connections.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

/// Several network namespaces on one bridge, `10.77.0.0/24`. The test is `.1`, the hosts are `.11`, `.12` and so on.
/// Dropping the value removes them, and ends nothing that runs in them.
#[derive(Debug)]
pub struct NetworkHosts {
    /// Part of the names of all interfaces and namespaces: 10 letters at most.
    name: String,
    prefix: [u8; 3],
    count: u8,
}

/// Set in the process of a test that runs in its own network: the file which that process creates, as a sign that it ran.
const OWN_NETWORK_VARIABLE: &str = "SAGGAR_TEST_NETWORK";

/// Returns `true` in a network namespace of the test. The first call, in the namespace of the machine, runs the calling test
/// again in one, and returns `false` when that has passed, or after it has printed SKIP because this user cannot
/// create namespaces.
///
/// # Panics
/// If the test failed, or if `REQUIRE_ALL` is set and this user cannot create namespaces.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
pub fn enter_own_network() -> bool {
    if let Some(sign) = std::env::var_os(OWN_NETWORK_VARIABLE) {
        std::fs::write(sign, "").expect("the directory of the calling process");
        ip(&["link", "set", "lo", "up"]).expect("the namespace belongs to the test");
        return true;
    }
    let can = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL is set, and `unshare --net` is refused");
        println!("SKIP: this user cannot create network namespaces");
        return false;
    }
    // The test harness names the thread of each test after it.
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test");
    let program = std::env::current_exe().expect("the path of this program");
    let directory = tempfile::tempdir().expect("a directory");
    let sign = directory.path().join("ran");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(&program).args(["--exact", test, "--nocapture"]).env(OWN_NETWORK_VARIABLE, &sign);
    let status = command.status().expect("unshare is installed");
    assert!(status.success(), "{test} failed in its network: {status}");
    assert!(sign.exists(), "no test of {} is called {test}", program.display());
    false
}

impl NetworkHosts {
    /// Creates the hosts. Call it where [`enter_own_network`] returned `true`.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn create(count: u8) -> NetworkHosts {
        // Names of namespaces are common to the machine.
        let hosts = NetworkHosts { name: format!("sg{}", std::process::id() % 100_000), prefix: [10, 77, 0], count };
        let bridge = hosts.bridge();
        let created = ip(&["link", "add", &bridge, "type", "bridge"])
            .and_then(|()| ip(&["addr", "add", &format!("{}/24", hosts.gateway()), "dev", &bridge]))
            .and_then(|()| ip(&["link", "set", &bridge, "up"]))
            .and_then(|()| (0..count).try_for_each(|at| hosts.add(at)));
        created.expect("root can create network namespaces");
        hosts
    }

    fn add(&self, at: u8) -> Result<(), String> {
        let (namespace, inner, outer) = (self.namespace(at), "eth0", self.link(at));
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", &outer, "type", "veth", "peer", "name", inner, "netns", &namespace])?;
        ip(&["link", "set", &outer, "master", &self.bridge(), "up"])?;
        ip(&["-n", &namespace, "addr", "add", &format!("{}/24", self.address(at)), "dev", inner])?;
        ip(&["-n", &namespace, "link", "set", inner, "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    fn bridge(&self) -> String {
        format!("{}b", self.name)
    }

    fn namespace(&self, at: u8) -> String {
        format!("{}n{at}", self.name)
    }

    fn link(&self, at: u8) -> String {
        format!("{}v{at}", self.name)
    }

    /// Returns the address of the test, which all hosts reach.
    pub fn gateway(&self) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, 1)
    }

    /// Returns the address of a host.
    pub fn address(&self, at: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, 11 + at)
    }

    /// Returns a command that runs a program on a host; the caller adds its arguments. The program has the process
    /// identifier of the command.
    pub fn command(&self, at: u8, program: &std::path::Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(at))).arg(program);
        command
    }

    /// Cuts the connection of a host.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn cut(&self, at: u8) {
        ip(&["link", "set", &self.link(at), "down"]).expect("the link exists");
    }

    /// Connects a host again.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn heal(&self, at: u8) {
        ip(&["link", "set", &self.link(at), "up"]).expect("the link exists");
    }
}

impl Drop for NetworkHosts {
    fn drop(&mut self) {
        for at in 0..self.count {
            let _ = ip(&["link", "del", &self.link(at)]);
            let _ = ip(&["netns", "del", &self.namespace(at)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output: Output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("`ip {}`: {said}", arguments.join(" "))) }
}

/// Forwards connections to an address of this machine to a port of it. Its threads end with their connections and the
/// process.
#[derive(Debug)]
pub struct TcpForwarder {
    port: u16,
}

impl TcpForwarder {
    /// Starts to forward connections from a free port at `address` to `port` of 127.0.0.1.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(address: Ipv4Addr, port: u16) -> TcpForwarder {
        let listener = TcpListener::bind((address, 0)).expect("a free port");
        let own = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client whose server is gone loses its connection.
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                let (Ok(client_end), Ok(server_end)) = (client.try_clone(), server.try_clone()) else { continue };
                thread::spawn(move || forward(client, server));
                thread::spawn(move || forward(server_end, client_end));
            }
        });
        TcpForwarder { port: own }
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
