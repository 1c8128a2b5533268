//! Steps whose plugins declare inputs and outputs, and steps that make datasets.

use super::*;

/// Returns a plan whose step `judge` has an input of each type and these arguments, after a training `train`, a plugin
/// `choose` and a data step `copy`.
fn plan(args: Value) -> PipelinePlan {
    let declares = json!({
        "inputs": {
            "table": { "type": "dataset" },
            "report": { "type": "file" },
            "model": { "type": "model" },
            "best": { "type": "checkpoint" },
            "count": { "type": "integer", "default": 1, "min": 0 },
            "share": { "type": "number", "default": 0.5, "min": 0, "max": 1 },
            "mode": { "type": "text", "default": "a", "choices": ["a", "b"] },
            "note": { "type": "text", "default": "" },
            "flag": { "type": "boolean", "default": false },
        },
    });
    let chooser = json!({
        "outputs": {
            "rows": { "type": "dataset" },
            "report": { "type": "file" },
            "count": { "type": "integer" },
            "share": { "type": "number" },
            "flag": { "type": "boolean" },
            "note": { "type": "text" },
            "chosen": { "type": "model" },
        },
    });
    let steps = json!([
        { "name": "train" },
        { "name": "many", "for_each": [1, 2] },
        { "name": "choose", "kind": "plugin", "declares": chooser },
        { "name": "copy", "kind": "data", "dataset": "rows", "from": "${steps.choose.outputs.rows}" },
        { "name": "judge", "kind": "plugin", "declares": declares, "args": args },
    ]);
    let params = json!({ "rows": "rows/1", "share": 0.25, "count": 3, "list": [1] });
    let plan = json!({ "name": "n", "project": "p", "params": params, "steps": steps });
    serde_json::from_value(plan).unwrap()
}

fn valid() -> Value {
    json!({
        "table": "${steps.copy.outputs.dataset}",
        "report": "${steps.choose.outputs.report}",
        "model": "${steps.train.outputs.model}",
        "best": "${steps.train.outputs.checkpoint}",
    })
}

/// Returns the mistakes of the step `judge` with these arguments instead of the valid ones.
fn mistakes_with(change: Value) -> Vec<String> {
    let mut args = valid();
    args.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let found = plan(args).check().err().unwrap_or_default();
    assert!(found.iter().all(|it| it.step == Some(4) && it.key == "args" && !it.hint.is_empty()), "{found:?}");
    found.into_iter().map(|it| it.message).collect()
}

#[test]
fn values_of_the_declared_types_are_accepted() {
    let accepted = [
        json!({}),
        json!({ "table": "digits/2", "report": "job:a-1/output/report", "best": "job:a-1/checkpoint@best" }),
        json!({ "table": "${steps.choose.outputs.rows}", "model": "${steps.choose.outputs.chosen}" }),
        json!({ "table": "${steps.train.outputs.output}", "model": "digits@3" }),
        json!({ "table": "${params.rows}", "model": "model:digits" }),
        json!({ "count": "${steps.choose.outputs.count}", "share": "${steps.choose.outputs.count}" }),
        json!({ "count": "${params.count}", "share": "${params.share}", "flag": "${steps.choose.outputs.flag}" }),
        json!({ "note": "${run.name} of ${steps.choose.outputs.count} in ${steps.train.outputs.job}", "mode": "b" }),
        json!({ "note": "${steps.choose.outputs.note}", "flag": true, "table": "digits/${params.count}" }),
    ];
    for change in accepted {
        assert_eq!(mistakes_with(change.clone()), Vec::<String>::new(), "{change}");
    }
    let dependencies = plan(valid()).check().unwrap();
    let of_judge: Vec<usize> = dependencies[4].iter().map(|it| it.step).collect();
    assert_eq!(of_judge.len(), 3, "{of_judge:?}");
    assert_eq!(dependencies[3], [StepDependency { step: 2, uses_output: true }]);
}

#[test]
fn values_of_other_types_are_refused_with_the_input_and_both_types() {
    let dataset = "a dataset, such as digits/1 or job:digits-7/output/table";
    for (change, expected) in [
        (
            json!({ "table": "${steps.train.outputs.model}" }),
            format!("input `table`: expected {dataset}, got ${{steps.train.outputs.model}}, which is a model"),
        ),
        (
            json!({ "table": "${steps.choose.outputs.report}" }),
            format!("expected {dataset}, got ${{steps.choose.outputs.report}}, which is a file"),
        ),
        (json!({ "report": "${steps.copy.outputs.dataset}" }), "which is a version of a dataset".to_owned()),
        (json!({ "model": "${steps.train.outputs.checkpoint}" }), "which is a checkpoint".to_owned()),
        (json!({ "best": "${steps.train.outputs.job}" }), "which is a text".to_owned()),
        (
            json!({ "count": "${steps.choose.outputs.share}" }),
            "input `count`: expected an integer of at least 0, got ${steps.choose.outputs.share}, which is a number"
                .to_owned(),
        ),
        (
            json!({ "note": "${steps.choose.outputs.count}" }),
            "input `note`: expected a text, got ${steps.choose.outputs.count}, which is an integer".to_owned(),
        ),
        (json!({ "count": "${run.id}" }), "got ${run.id}, which is a text".to_owned()),
        (json!({ "count": "n-${params.count}" }), "got a text with placeholders".to_owned()),
        (json!({ "table": "x-${steps.choose.outputs.rows}" }), "must be the whole value".to_owned()),
        (
            json!({ "count": "${params.share}" }),
            "input `count`: expected an integer of at least 0, got 0.25".to_owned(),
        ),
        (json!({ "count": "${params.list}" }), "got [1]".to_owned()),
        (json!({ "share": 2 }), "input `share`: expected a number from 0 to 1, got 2".to_owned()),
        (json!({ "mode": "c" }), "input `mode`: expected one of a, b, got \"c\"".to_owned()),
        (json!({ "flag": "yes" }), "expected true or false, got \"yes\"".to_owned()),
        (json!({ "report": "digits/2" }), "input `report`: expected a file".to_owned()),
        (json!({ "model": "job:a-1/checkpoint@3" }), "input `model`: expected a version of a model".to_owned()),
        (json!({ "table": ["digits"] }), format!("expected {dataset}, got [\"digits\"]")),
        (json!({ "tabel": "digits" }), "the plugin has no input \"tabel\"".to_owned()),
        (json!({ "count": "${params.cuont}" }), "there is no parameter \"cuont\"".to_owned()),
        (json!({ "count": "${item}" }), "${item} has a value only in a step with for_each".to_owned()),
        (json!({ "count": "${steps.choose.outputs.median}" }), "step choose has no output \"median\"".to_owned()),
        (json!({ "note": "${steps.many.outputs.job}" }), "step many has an output for each item".to_owned()),
    ] {
        let found = mistakes_with(change.clone());
        assert!(found.len() == 1 && found[0].contains(&expected), "{change}: {found:?}, expected {expected}");
    }
}

#[test]
fn a_missing_input_is_named_unless_the_task_gives_it() {
    let mut args = valid();
    args.as_object_mut().unwrap().remove("table");
    let mut without = plan(args);
    let found = without.check().unwrap_err();
    assert!(found[0].message.starts_with("input `table` is missing: expected a dataset"), "{found:?}");
    without.steps[4].spec.insert("data".to_owned(), json!([{ "dataset": "digits", "mount": "/table" }]));
    assert!(without.check().is_ok());
    without.steps[4].spec.insert("parameters".to_owned(), json!({ "share": "much" }));
    let found = without.check().unwrap_err();
    assert_eq!(found[0].message, "input `share`: expected a number from 0 to 1, got \"much\"");
    // An argument of the step replaces that of the task.
    without.steps[4].args.insert("share".to_owned(), json!(1));
    assert!(without.check().is_ok());
}

#[test]
fn each_item_of_a_list_has_the_type_of_its_input() {
    let mut args = valid();
    args.as_object_mut().unwrap().insert("share".to_owned(), json!("${item}"));
    let mut each = plan(args);
    each.steps[4].for_each = Some(json!([0.5, 1]));
    assert!(each.check().is_ok());
    each.steps[4].for_each = Some(json!([0.5, 3]));
    assert_eq!(each.check().unwrap_err()[0].message, "input `share`: expected a number from 0 to 1, got 3");
}

#[test]
fn outputs_of_a_plugin_that_was_not_read_can_be_of_any_type() {
    check(
        "",
        &[
            "name = \"choose\"\nplugin = \"a\"\nargs = { x = \"${steps.sub.outputs.inner.rows}\" }",
            "name = \"rows\"\nkind = \"data\"\ndataset = \"rows\"\nfrom = \"${steps.choose.outputs.rows}\"",
            "name = \"train\"\ntask = \"t\"\ndata = [{ from = \"${steps.rows.outputs.dataset}\" }]\n\
             init_from = \"${steps.choose.outputs.best}\"",
            "name = \"no\"\ntask = \"t\"\ninit_from = \"${steps.rows.outputs.rows}\"",
            "name = \"sub\"\npipeline = \"m\"\n[[pipeline.m.step]]\nname = \"inner\"\nplugin = \"a\"",
        ],
        &[("30:13", "step rows has no output \"rows\"")],
    );
}

#[test]
fn keys_of_steps_of_plugins_and_datasets_are_checked() {
    check(
        "",
        &[
            "name = \"a\"\nplugin = \"a\"\ntask = \"t\"",
            "name = \"b\"\nkind = \"plugin\"",
            "name = \"c\"\nkind = \"data\"\ntask = \"t\"\ndataset = \"d\"\nfrom = \"job:a-1/output\"",
            "name = \"d\"\nkind = \"data\"",
            "name = \"e\"\nkind = \"deploy\"\nfrom = { url = \"https://a.b/c\", sha256 = \"0\" }",
            "name = \"f\"\nkind = \"data\"\ndataset = \"d\"\nfrom = \"digits/1\"",
            "name = \"g\"\nplugin = \"a\"\ndata = [\"digits:/table\"]\ninit_from = \"model:m@1\"",
            "name = \"h\"\ntask = \"t\"\ndataset = \"d\"\nplugin = \"a\"\nkind = \"train\"",
            "name = \"i\"\nkind = \"data\"\ndataset = \"d\"\nfrom = { url = \"https://a.b/c\" }",
        ],
        &[
            ("13:1", "step \"a\" of kind plugin needs a plugin or a task, and not both"),
            ("17:1", "step \"b\" of kind plugin needs a plugin or a task, and not both"),
            ("20:1", "of kind data runs no plugin"),
            ("26:1", "a step of kind data needs from"),
            ("26:1", "a step of kind data needs dataset"),
            ("32:8", "takes a model version, not files"),
            ("37:8", "step f: expected a version of dataset d, got \"digits/1\""),
            ("41:8", "a step of kind plugin has no data"),
            ("42:13", "a step of kind plugin has no init_from"),
            ("43:1", "step \"h\" of kind train names a plugin"),
            ("46:11", "a step of kind train has no dataset"),
            ("53:8", "has no sha256"),
        ],
    );
}

#[test]
fn used_outputs_are_found_in_every_text() {
    let step = json!({
        "name": "a",
        "args": { "x": ["${steps.b.outputs.one}", { "y": "is ${steps.c.outputs.two}" }] },
        "data": [{ "from": "${steps.d.outputs.three}", "to": "/data" }],
        "from": { "url": "https://a.b/${steps.e.outputs.four}", "sha256": "0" },
        "message": "${steps.f.outputs.five} ${run.id} $${steps.g.outputs.six}",
    });
    let step: PipelineStep = serde_json::from_value(step).unwrap();
    let mut used = step.used_outputs();
    used.sort();
    let names: Vec<String> = used.into_iter().map(|(step, output)| format!("{step}.{output}")).collect();
    assert_eq!(names, ["b.one", "c.two", "d.three", "e.four", "f.five"]);
}

/// Returns the mistakes of a last step with this condition.
fn mistakes_of_condition(when: Value) -> Vec<String> {
    let mut plan = plan(valid());
    let last = json!({ "name": "last", "when": [when] });
    plan.steps.push(serde_json::from_value(last).unwrap());
    let found = plan.check().err().unwrap_or_default();
    assert!(found.iter().all(|it| it.step == Some(5) && it.key == "when" && !it.hint.is_empty()), "{found:?}");
    found.into_iter().map(|it| it.message).collect()
}

#[test]
fn a_condition_compares_outputs_and_parameters_of_one_type() {
    for condition in [
        "${steps.choose.outputs.share} > 0.9",
        "${steps.choose.outputs.count} >= ${params.share}",
        "0.5 != ${steps.choose.outputs.share}",
        "${steps.choose.outputs.flag}",
        "!${steps.choose.outputs.flag}",
        "${steps.choose.outputs.flag} == false",
        "${steps.choose.outputs.note} == 'well'",
        "${steps.train.outputs.job} != ${params.rows}",
    ] {
        assert_eq!(mistakes_of_condition(json!(condition)), [""; 0], "{condition}");
    }
    for (condition, expected) in [
        ("${steps.choose.outputs.share}", "${steps.choose.outputs.share} is not true or false, but a number"),
        ("${steps.choose.outputs.note} > 1", "> compares numbers, and ${steps.choose.outputs.note} is a text"),
        ("${steps.choose.outputs.share} == 'x'", "is a number, and 'x' is a text"),
        ("${steps.choose.outputs.flag} != 1", "is true or false, and 1 is a number"),
        ("${steps.choose.outputs.chosen} == 'x'", "output chosen of step choose is a model"),
        ("${steps.train.outputs.checkpoint} == 'x'", "is a checkpoint, which has no value to compare"),
        ("${steps.many.outputs.job} == 'x'", "step many has an output for each item"),
        ("${steps.choose.outputs.median} > 1", "step choose has no output \"median\""),
        ("${steps.chose.outputs.share} > 1", "no step is called \"chose\""),
        ("${params.list} == 1", "parameter list is a list"),
        ("${params.none} == 1", "there is no parameter \"none\""),
        ("${item} == 1", "a condition is of the step and not of its items"),
        ("${steps.choose.outputs.share} > high", "expected a boolean parameter or output, or a comparison"),
    ] {
        let found = mistakes_of_condition(json!(condition));
        assert!(found.len() == 1 && found[0].contains(expected), "{condition}: {found:?}");
    }
    assert_eq!(mistakes_of_condition(json!(1)).len(), 1);
}

#[test]
fn a_step_depends_on_the_steps_whose_outputs_its_condition_uses() {
    let mut plan = plan(valid());
    let last = json!({ "name": "last", "when": ["${steps.choose.outputs.share} > 0.9", "${params.count} == 3"] });
    plan.steps.push(serde_json::from_value(last).unwrap());
    assert_eq!(plan.check().unwrap()[5], [StepDependency { step: 2, uses_output: true }]);
    assert_eq!(plan.steps[5].used_outputs(), [("choose".to_owned(), "share".to_owned())]);
    // A step cannot wait for itself.
    plan.steps[2].when = vec![json!("${steps.choose.outputs.share} > 0.9")];
    assert!(plan.check().unwrap_err()[0].message.contains("choose -> choose"));
}
