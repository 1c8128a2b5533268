//! A PostgreSQL server with a database for servers under test.

#[path = "../../host/store/src/records/postgres/tests/test_server.rs"]
pub mod test_server;

use test_server::TestServer;

/// A server with one database. It ends when this value is dropped, also if the test panics.
#[derive(Debug)]
pub struct PostgresServer {
    server: TestServer,
    url: String,
}

impl PostgresServer {
    /// Starts a server, or prints SKIP and returns `None` if PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it is not installed and `REQUIRE_ALL` or `REQUIRE_POSTGRES` is set, or does not start.
    pub fn start() -> Option<PostgresServer> {
        let server = TestServer::start()?;
        let url = server.create_database().replacen("saggar@", "saggar:hunter2@", 1);
        Some(PostgresServer { server, url })
    }

    /// Returns the URL of the database, with a password that the server does not ask for.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills all processes of the server at once, and starts it again.
    pub fn kill_and_restart(&self) {
        self.server.kill_and_restart();
    }

    /// Kills all processes of the server at once.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts the server that was stopped, with the same data and port.
    pub fn start_again(&self) {
        self.server.start_again();
    }
}
