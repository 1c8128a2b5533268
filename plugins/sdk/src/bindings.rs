//! The host's interfaces as `wit-bindgen` renders them from `wit/`.
//!
//! Everything here is generated; the rest of the crate wraps it, and only what the wrapping leaves out is worth using
//! from here. The two worlds share one set of imported types; a plugin that trains and predicts exports both.
#![allow(unsafe_code, missing_docs, unreachable_pub, reason = "generated code")]
#![allow(clippy::all, reason = "generated code")]

/// The world of a plugin that predicts.
pub mod predict {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "predict-plugin",
        pub_export_macro: true,
        export_macro_name: "export_predictor",
        default_bindings_module: "saggar_plugin::bindings::predict",
        generate_all,
        generate_unused_types: true,
    });
}

/// The world of a plugin that trains, over the types of [`predict`].
pub mod train {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "train-plugin",
        pub_export_macro: true,
        export_macro_name: "export_trainer",
        default_bindings_module: "saggar_plugin::bindings::train",
        generate_all,
        with: {
            "saggar:plugin/tensors@0.1.0": super::predict::saggar::plugin::tensors,
            "saggar:plugin/variables@0.1.0": super::predict::saggar::plugin::variables,
            "saggar:plugin/graphs@0.1.0": super::predict::saggar::plugin::graphs,
            "saggar:plugin/logging@0.1.0": super::predict::saggar::plugin::logging,
        },
    });
}

/// The importer's half of the world of a plugin that imports, over the types of [`predict`], which is the other half.
pub mod import {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package saggar:sdk;
            world importing {
                import saggar:plugin/tensors@0.1.0;
                import saggar:plugin/variables@0.1.0;
                export saggar:plugin/importer@0.1.0;
            }
        ",
        world: "saggar:sdk/importing",
        pub_export_macro: true,
        export_macro_name: "export_importer",
        default_bindings_module: "saggar_plugin::bindings::import",
        generate_all,
        with: {
            "saggar:plugin/tensors@0.1.0": super::predict::saggar::plugin::tensors,
            "saggar:plugin/variables@0.1.0": super::predict::saggar::plugin::variables,
        },
    });
}

pub use import::exports::saggar::plugin::importer;
pub use predict::exports::saggar::plugin::predictor;
pub use predict::saggar::plugin::{graphs, logging, replies, tensors, variables};
pub use train::exports::saggar::plugin::trainer;
pub use train::saggar::plugin::{datasets, job};
