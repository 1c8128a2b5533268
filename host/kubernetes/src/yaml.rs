//! YAML documents of JSON values.

use serde_json::Value;

/// Returns a value as YAML, ending with a line end. Lines are not folded, so that texts can be searched for.
pub(crate) fn to_yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: true, folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).expect("values of JSON can be written")
}
