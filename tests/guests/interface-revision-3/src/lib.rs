//! The guest of `interface_guest.rs`, built with revision 2 of the plugin interface (`wit/`).
#![allow(unsafe_code, missing_docs, unreachable_pub, reason = "generated code")]

wit_bindgen::generate!({ path: "wit", world: "model-plugin", generate_all });

#[path = "../../interface_guest.rs"]
mod interface_guest;

/// Calls a function that the first revision does not have.
fn shards() -> u32 {
    saggar::plugin::job::shards()
}

use interface_guest::InterfaceGuest;
export!(InterfaceGuest);
