//! A PostgreSQL server with a database for servers under test.

#[path = "../../host/store/src/records/postgres/tests/test_server.rs"]
pub mod test_server;

pub use test_server::TestServerOptions;

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
        PostgresServer::start_with(TestServerOptions::default())
    }

    /// Starts a server as [`PostgresServer::start`] does, with these options.
    ///
    /// # Panics
    /// The same.
    pub fn start_with(options: TestServerOptions) -> Option<PostgresServer> {
        let server = TestServer::start_with(options)?;
        let url = server.create_database().replacen("saggar@", "saggar:hunter2@", 1);
        Some(PostgresServer { server, url })
    }

    /// Returns the URL of the database, with a password that the server does not ask for.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the server itself.
    pub fn server(&self) -> &TestServer {
        &self.server
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
