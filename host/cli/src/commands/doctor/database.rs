//! Checks the database of a server whose records other servers use too.

use std::time::Duration;

use saggar_store::records::inspect_database;

use super::{DoctorFinding, FindingState};
use crate::args::DatabaseUrl;
use crate::exit;

const NAME: &str = "database";
/// Latency above which claims and renewals of leases take noticeable time.
const LATENCY_MAX: Duration = Duration::from_millis(50);
/// Difference of the clocks above which times of events of different servers are misleading.
const CLOCK_SKEW_MS_MAX: u64 = 1_000;

/// Checks that the database can be used: its version, encoding, schema, latency and clock.
pub(super) fn check_database(url: &DatabaseUrl) -> Vec<DoctorFinding> {
    let failed = |what: String, hint: &str| {
        vec![DoctorFinding::new(NAME, FindingState::Failed, what).with_hint(hint).with_exit_code(exit::INVALID)]
    };
    let url = match url.as_postgres() {
        Ok(url) => url,
        Err(message) => return failed(message, "give the URL of a database of PostgreSQL"),
    };
    let found = match inspect_database(url) {
        Ok(found) => found,
        Err(error) => {
            let hint = "the server has to run and accept connections of this host and user (pg_hba.conf), and the \
                        database has to exist: `createdb -E UTF8 -T template0 NAME` creates one";
            return failed(error.to_string(), hint);
        }
    };
    let database = &found.database;
    if !found.is_version_supported {
        let what = format!("{database} is of PostgreSQL {}, and version 13 or newer is needed", found.version);
        return failed(what, "upgrade the server of the database with pg_upgrade");
    }
    if !found.is_encoding_supported {
        let what = format!("{database} has the encoding {}, and UTF8 is needed", found.encoding);
        return failed(what, "create another database: `createdb -E UTF8 -T template0 NAME`");
    }
    let schema = match found.schema {
        None => "no records yet".to_owned(),
        Some(schema) if schema > found.schema_newest => {
            let what = format!(
                "{database} has records of schema {schema}, and this program knows up to {}",
                found.schema_newest
            );
            return failed(what, "use the program of the newest server; all servers of a database need one version");
        }
        Some(schema) if schema < found.schema_newest => {
            format!("records of schema {schema}, which the next server migrates to {}", found.schema_newest)
        }
        Some(schema) => format!("records of schema {schema}"),
    };
    let latency = format!("{:.1} ms", found.latency.as_secs_f64() * 1000.0);
    let what = format!("{database}: PostgreSQL {}, {schema}, answers in {latency}", found.version);
    let mut findings = vec![DoctorFinding::new(NAME, FindingState::Ok, what)];
    if found.latency > LATENCY_MAX {
        findings[0].hint =
            Some("jobs start slowly with this latency; run the servers nearer to the database".to_owned());
    }
    if found.clock_skew_ms.unsigned_abs() > CLOCK_SKEW_MS_MAX {
        let what = format!("its clock differs from that of this machine by {} ms", found.clock_skew_ms);
        let hint = "times of jobs will differ between servers, though leases do not: synchronize the clocks, for example \
                    with chrony";
        findings.push(DoctorFinding::new(NAME, FindingState::Ok, what).with_hint(hint));
    }
    findings
}
