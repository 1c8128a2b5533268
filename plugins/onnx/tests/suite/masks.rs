//! The keys that a query attends to. In `value` one key is 1 and the others are 0, so results are the weights of that
//! key.

use crate::operator_rules::{TestAttribute, TestOperand, run_operator};
use TestAttribute::Int;
use TestOperand::{K, Nothing, X};

/// Returns the attention weights for equal scores: each allowed key has the same weight. Queries and keys are `[1, 1,
/// n, 1]`.
fn attention_weights(
    attributes: &[(&str, TestAttribute<'_>)],
    queries: usize,
    keys: usize,
    rest: Vec<TestOperand<'_>>,
) -> String {
    let (query, key) = ([1, 1, queries as i64, 1], [1, 1, keys as i64, 1]);
    let (zeros, values) = (vec![0.0; queries.max(keys)], (0..keys).map(|key| f64::from(1 << key)).collect::<Vec<_>>());
    let mut operands = vec![X(&query, &zeros[..queries]), X(&key, &zeros[..keys]), X(&key, &values)];
    operands.extend(rest);
    run_operator("Attention", attributes, &operands, 1, 25)
}

#[test]
fn a_query_with_no_allowed_key_gives_zeros() {
    let hidden = f64::NEG_INFINITY;
    let mask = X(&[2, 2], &[hidden, hidden, 0.0, hidden]);
    assert_eq!(attention_weights(&[], 2, 2, vec![mask]), "[1, 1, 2, 1] 0 1");
}

#[test]
fn causal_masks_end_at_the_number_of_valid_keys() {
    // Two queries and four keys, three of them valid. The queries are at the last two valid positions.
    let lengths = || vec![Nothing, Nothing, Nothing, K(&[3])];
    assert_eq!(attention_weights(&[("is_causal", Int(1))], 2, 4, lengths()), "[1, 1, 2, 1] 1.5 2.3333");
    // One valid key. The first query is before it and attends to no key.
    let lengths = vec![Nothing, Nothing, Nothing, K(&[1])];
    assert_eq!(attention_weights(&[("is_causal", Int(1))], 2, 4, lengths), "[1, 1, 2, 1] 0 1");
}

#[test]
fn attention_windows_bound_each_side() {
    // Keys 1 2 4 8, with the queries at the first three positions.
    let window = |left, right| [("left_window_size", Int(left)), ("right_window_size", Int(right))];
    assert_eq!(attention_weights(&window(1, 0), 3, 4, Vec::new()), "[1, 1, 3, 1] 1 1.5 3");
    assert_eq!(attention_weights(&window(-1, 0), 3, 4, Vec::new()), "[1, 1, 3, 1] 1 1.5 2.3333");
    assert_eq!(attention_weights(&window(0, 1), 3, 4, Vec::new()), "[1, 1, 3, 1] 1.5 3 6");
    assert_eq!(attention_weights(&window(0, -1), 3, 4, Vec::new()), "[1, 1, 3, 1] 3.75 4.6667 6");
    let past = || vec![Nothing, X(&[1, 1, 1, 1], &[0.0]), X(&[1, 1, 1, 1], &[0.0])];
    assert_eq!(attention_weights(&window(1, 0), 2, 2, past()), "[1, 1, 2, 1] 0.5 1.5");
    // A query after the last key, whose window does not reach back to it.
    assert_eq!(attention_weights(&window(1, 0), 4, 2, Vec::new()), "[1, 1, 4, 1] 1 1.5 2 0");
    let message = attention_weights(&window(-2, 0), 2, 2, Vec::new());
    assert!(message.ends_with("left_window_size must be -1 or a number of positions, not -2"), "{message}");
}

#[test]
fn an_incomplete_attention_cache_is_refused() {
    let half = vec![Nothing, X(&[1, 1, 1, 1], &[0.0])];
    let message = attention_weights(&[], 1, 1, half);
    assert!(message.ends_with("past_key and past_value go together"), "{message}");
}
