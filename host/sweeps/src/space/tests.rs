use proptest::prelude::*;
use serde_json::json;

use super::*;

fn space(ranges: &[(&str, &str)]) -> Result<SearchSpace, SweepSpecError> {
    let ranges = ranges.iter().map(|(name, range)| ((*name).to_owned(), (*range).to_owned()));
    SearchSpace::parse(&ranges.collect())
}

#[test]
fn ranges_are_parsed_and_shown_in_one_form() {
    for (text, displayed) in [
        ("log(1e-4, 1e-1)", "log(0.0001,0.1)"),
        (" uniform(-1,0.5)", "uniform(-1.0,0.5)"),
        ("int(1,8)", "int(1,8)"),
        ("choice(sgd, adam,true)", "choice(\"sgd\",\"adam\",true)"),
        ("0.1,0.01", "choice(0.1,0.01)"),
        ("16", "choice(16)"),
    ] {
        let range = ParameterRange::parse(text).unwrap();
        assert_eq!(range.to_string(), displayed);
        assert_eq!(ParameterRange::parse(displayed).unwrap(), range);
    }
}

#[test]
fn invalid_ranges_say_what_is_expected() {
    for (text, expected) in [
        ("", "a value is missing"),
        ("1,,2", "a value is missing"),
        ("1,1", "given twice"),
        ("log(0,1)", "numbers above 0"),
        ("log(1e-4)", "log(1e-4,1e-1)"),
        ("log(1,NaN)", "numbers above 0"),
        ("uniform(0,inf)", "two numbers"),
        ("uniform(2,1)", "not above the minimum"),
        ("int(1.5,2)", "whole numbers"),
        ("int(1,8", "expected `)`"),
        ("normal(0,1)", "unknown range normal()"),
        ("choice()", "a value is missing"),
    ] {
        let error = ParameterRange::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let many: Vec<String> = (0..=VALUES_MAX).map(|value| value.to_string()).collect();
    assert_eq!(ParameterRange::parse(&many.join(",")), Err(RangeError::Values { count: VALUES_MAX + 1 }));
    assert!(matches!(ParameterRange::parse(&"x".repeat(1 << 20)), Err(RangeError::Bytes { .. })));
    assert_eq!(space(&[]), Err(SweepSpecError::EmptySpace));
    assert!(matches!(space(&[("a b", "1")]), Err(SweepSpecError::Name { .. })));
    let error = space(&[("lr", "log(1,0)")]).unwrap_err().to_string();
    assert!(error.starts_with("space.lr: "), "{error}");
}

#[test]
fn combinations_are_all_and_distinct() {
    let space = space(&[("a", "1,2,3"), ("b", "x,y")]).unwrap();
    assert_eq!(space.combination_count(), Ok(6));
    let all: Vec<Value> = (0..6).map(|index| space.combination(index).into()).collect();
    assert_eq!(all[0], json!({"a": 1, "b": "x"}));
    assert_eq!(all[1], json!({"a": 1, "b": "y"}));
    assert_eq!(all[5], json!({"a": 3, "b": "y"}));
    let distinct: std::collections::HashSet<String> = all.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), 6);
    let endless = self::space(&[("a", "1,2"), ("lr", "log(1e-4,1)")]).unwrap();
    assert!(matches!(endless.combination_count(), Err(SweepSpecError::NotListed { .. })));
    let names: Vec<String> = (0..32).map(|name| format!("p{name}")).collect();
    let large: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1,2,3,4,5,6,7,8")).collect();
    assert_eq!(self::space(&large).unwrap().combination_count(), Err(SweepSpecError::Trials { count: u64::MAX }));
}

#[test]
fn draws_cover_their_range_evenly() {
    let space = space(&[("lr", "log(1e-4,1)"), ("n", "int(1,4)"), ("u", "uniform(-1,1)")]).unwrap();
    let draws: Vec<_> = (1..=4000).map(|trial| space.draw(9, trial)).collect();
    let share = |is: &dyn Fn(&Map<String, Value>) -> bool| draws.iter().filter(|it| is(it)).count() as f64 / 4000.0;
    let number = |it: &Map<String, Value>, name: &str| it[name].as_f64().unwrap();
    // Four standard deviations of a share of 4000 draws.
    assert!((share(&|it| number(it, "lr") < 1e-2) - 0.5).abs() < 0.032);
    assert!((share(&|it| number(it, "u") < 0.0) - 0.5).abs() < 0.032);
    for n in 1..=4 {
        assert!((share(&|it| it["n"] == n) - 0.25).abs() < 0.028, "{n}");
    }
}

proptest! {
    #[test]
    fn a_trial_depends_on_seed_and_number_alone_and_stays_in_range(
        seed: u64, trial: u32, min in -1e9_f64..1e9, width in 1e-6_f64..1e9, low: i32, count in 1_i64..1000,
    ) {
        let ranges = [
            format!("uniform({min:?},{:?})", min + width),
            format!("log({:?},{:?})", width, width * 1e3),
            format!("int({low},{})", i64::from(low) + count),
            "choice(a,b,c)".to_owned(),
        ];
        let named: Vec<(String, String)> =
            ranges.iter().enumerate().map(|(at, range)| (format!("p{at}"), range.clone())).collect();
        let space = SearchSpace::parse(&named.iter().cloned().collect()).unwrap();
        let drawn = space.draw(seed, trial);
        prop_assert_eq!(&drawn, &space.draw(seed, trial));
        let number = |name: &str| drawn[name].as_f64().unwrap();
        prop_assert!((min..=min + width).contains(&number("p0")));
        prop_assert!((width..=width * 1e3).contains(&number("p1")));
        prop_assert!((i64::from(low)..=i64::from(low) + count).contains(&drawn["p2"].as_i64().unwrap()));
        prop_assert!(["a", "b", "c"].contains(&drawn["p3"].as_str().unwrap()));
    }

    #[test]
    fn no_text_panics_the_parser(text in "\\PC{0,60}") {
        let _ = ParameterRange::parse(&text);
    }
}
