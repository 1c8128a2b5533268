//! The guest of `interface_guest.rs`, built with revision 1 of the plugin interface (`wit/`).
#![allow(unsafe_code, missing_docs, unreachable_pub, reason = "generated code")]

wit_bindgen::generate!({ path: "wit", world: "model-plugin", generate_all });

#[path = "../../interface_guest.rs"]
mod interface_guest;

/// This revision has no shards.
fn shards() -> u32 {
    1
}

use interface_guest::InterfaceGuest;
export!(InterfaceGuest);
