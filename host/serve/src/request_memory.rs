//! The memory that a request over HTTP takes: whom it is charged to, the estimate for decoding its body, and the charge
//! of its response.

mod memory_estimate;
mod response_charge;

use axum::http::Extensions;
use saggar_serving::{ClientKey, MemoryCharge, RequestMemoryBudget};

use crate::access::Principal;

pub(crate) use memory_estimate::decode_bytes_max;
pub(crate) use response_charge::{ResponseCharge, charge_response};

/// Returns an empty charge to the account of the client whose request has these extensions.
pub(crate) fn charge_for_request(budget: &RequestMemoryBudget, extensions: &Extensions) -> MemoryCharge {
    charge_for_client(budget, extensions.get())
}

/// Returns an empty charge to this client's account. `None` is a client of this machine without a key.
pub(crate) fn charge_for_client(budget: &RequestMemoryBudget, client: Option<&Principal>) -> MemoryCharge {
    budget.charge_for_client(client.map(client_key))
}

fn client_key(client: &Principal) -> ClientKey {
    match client {
        Principal::Key(name) => ClientKey::Key(name.clone()),
        Principal::Loopback => ClientKey::Shared("loopback"),
        Principal::Socket => ClientKey::Shared("socket"),
        Principal::Anyone => ClientKey::Shared("anyone"),
        Principal::Cli => ClientKey::Shared("cli"),
        Principal::Nobody => ClientKey::Shared("nobody"),
    }
}
