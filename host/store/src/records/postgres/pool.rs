//! A bounded number of connections, each used by one transaction at a time.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Runtime};

use super::connection::PostgresConnection;
use super::failure::PostgresError;
use super::settings::ConnectionSettings;
use super::tls::TlsSetup;
use crate::limits::{POSTGRES_CONNECTIONS_MAX, RECORDS_BUSY_MS};

/// The connections of one instance of the records.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    settings: ConnectionSettings,
    tls: TlsSetup,
    state: Mutex<PoolState>,
    freed: Condvar,
    /// Transfers the bytes of all connections. `None` only while it is dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<PostgresConnection>,
    /// Number of connections, idle or in use.
    open: u32,
}

impl ConnectionPool {
    /// Makes a pool without connections.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started, or the certificates of `sslrootcert` cannot be read.
    pub(super) fn new(
        settings: ConnectionSettings,
    ) -> Result<ConnectionPool, Box<dyn std::error::Error + Send + Sync>> {
        let tls = TlsSetup::new(&settings.trust)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("saggar-postgres").enable_all().build()?;
        Ok(ConnectionPool { settings, tls, state: Mutex::default(), freed: Condvar::new(), runtime: Some(runtime) })
    }

    pub(super) fn settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    /// Returns an idle connection, opens one, or waits for one.
    ///
    /// # Errors
    /// Returns the error of opening a connection; `Busy`.
    pub(super) fn take(&self) -> Result<PooledConnection<'_>, PostgresError> {
        let deadline = Instant::now() + Duration::from_millis(RECORDS_BUSY_MS.into());
        let mut state = self.state.lock();
        loop {
            while let Some(connection) = state.idle.pop() {
                if !connection.is_closed() {
                    return Ok(PooledConnection { pool: self, connection: Some(connection) });
                }
                state.open -= 1;
            }
            if state.open < POSTGRES_CONNECTIONS_MAX {
                state.open += 1;
                drop(state);
                // Its drop decreases the number again if no connection can be opened.
                let mut place = PooledConnection { pool: self, connection: None };
                place.connection = Some(self.open()?);
                return Ok(place);
            }
            if self.freed.wait_until(&mut state, deadline).timed_out() {
                return Err(PostgresError::Busy(RECORDS_BUSY_MS / 1000));
            }
        }
    }

    /// Opens a connection that is not counted.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses.
    pub(super) fn open(&self) -> Result<PostgresConnection, PostgresError> {
        let runtime = self.runtime.as_ref().ok_or(PostgresError::Internal("the runtime has ended"))?;
        let id = crate::records::id::new(0);
        PostgresConnection::open(&self.settings, &self.tls, runtime.handle(), id)
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        // Waiting for the thread would panic in a task of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection in use. It is closed when it is dropped, unless it is put back.
pub(super) struct PooledConnection<'a> {
    pool: &'a ConnectionPool,
    connection: Option<PostgresConnection>,
}

impl PooledConnection<'_> {
    /// Returns the connection.
    pub(super) fn get(&mut self) -> Result<&mut PostgresConnection, PostgresError> {
        self.connection.as_mut().ok_or(PostgresError::Internal("the connection was put back"))
    }

    /// Puts back a connection whose transaction has ended.
    pub(super) fn put_back(mut self) {
        if let Some(connection) = self.connection.take() {
            let mut state = self.pool.state.lock();
            state.idle.push(connection);
            // Its drop counts it as closed.
            state.open += 1;
        }
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        self.pool.state.lock().open -= 1;
        self.pool.freed.notify_one();
    }
}
