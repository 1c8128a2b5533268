mod ports;

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::ProjectManifest;
use crate::limits::PIPELINE_STEPS_MAX;

const HEAD: &str = "manifest = 1\n[project]\nname = \"p\"\n[plugin.a]\nsource = \"a.wasm\"\n[task.t]\nplugin = \"a\"\n\
                    checkpoint = { every = \"30s\" }\n[task.u]\nplugin = \"a\"\n[pipeline.n]\n";

fn mistakes(rest: &str) -> String {
    ProjectManifest::parse(&format!("{HEAD}{rest}")).unwrap_err().render("f")
}

fn step(text: &str) -> String {
    format!("[[pipeline.n.step]]\n{text}\n")
}

/// Checks that the mistakes of a pipeline with these steps are these, each as a position and words of the message.
fn check(params: &str, steps: &[&str], expected: &[(&str, &str)]) {
    let steps: String = steps.iter().map(|text| step(text)).collect();
    let said = mistakes(&format!("{params}\n{steps}"));
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("  hint")).collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, (place, words)) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(&format!("f:{place}: ")) && line.contains(words),
            "expected {place} {words} in\n{said}"
        );
    }
    assert_eq!(said.matches("\n  hint: ").count(), expected.len(), "{said}");
}

#[test]
fn a_cycle_names_its_steps_in_order() {
    check(
        "",
        &[
            "name = \"a\"\ntask = \"t\"\nafter = [\"c\"]",
            "name = \"b\"\ntask = \"t\"\nafter = [\"a\"]",
            "name = \"c\"\ntask = \"t\"\nargs = { x = \"${steps.b.outputs.job}\" }",
            "name = \"d\"\ntask = \"t\"",
        ],
        &[("16:9", "the steps wait for each other: b -> c -> a -> b")],
    );
}

#[test]
fn unknown_names_are_mistakes_with_a_position() {
    check(
        "params = { steps = 3, deploy = true }",
        &[
            "name = \"train\"\ntask = \"t\"\nargs = { n = \"${params.step}\", m = \"${steps.tran.outputs.model}\" }",
            "name = \"serve\"\nkind = \"deploy\"\nfrom = \"${steps.train.outputs.base}\"\nafter = [\"trian\"]",
            "name = \"x\"\ntask = \"t\"\nargs = { a = \"${item}\", b = \"${secret}\", c = \"${run.id\" }\nwhen = \"${params.steps}\"",
        ],
        &[
            ("16:8", "no step is called \"tran\""),
            ("16:8", "there is no parameter \"step\""),
            ("20:8", "step train has no output \"base\""),
            ("21:9", "no step is called \"trian\""),
            ("25:8", "${item} has a value only in a step with for_each"),
            ("25:8", "`${secret}` is no placeholder"),
            ("25:8", "`${` has no closing `}`"),
            ("26:8", "${params.steps} is not true or false, but a number"),
        ],
    );
}

#[test]
fn outputs_must_have_the_type_of_the_input() {
    check(
        "",
        &[
            "name = \"train\"\ntask = \"t\"",
            "name = \"b\"\ntask = \"t\"\ndata = [{ from = \"${steps.train.outputs.model}\", to = \"/data\" }]\n\
             init_from = \"${steps.train.outputs.output}\"",
            "name = \"c\"\nkind = \"deploy\"\nfrom = \"${steps.train.outputs.checkpoint}\"",
            "name = \"d\"\nkind = \"predict\"\nfrom = \"${steps.train.outputs.checkpoint}\"\ntask = \"t\"",
            "name = \"e\"\ntask = \"t\"\nargs = { init_from = \"${steps.train.outputs.model}\" }\ninit_from = \"mnist\"",
            "name = \"f\"\ntask = \"t\"\ninit_from = \"x-${steps.train.outputs.model}\"\nmessage = \"of ${steps.train.outputs.model}\"",
        ],
        &[
            ("19:8", "${steps.train.outputs.model} is a model, and data takes a dataset or an output"),
            ("20:13", "is an output, and init_from takes a model or a checkpoint"),
            ("24:8", "a checkpoint names no model"),
            ("28:8", "is a checkpoint, and from takes a model"),
            ("33:8", "init_from is a key of the step, not a parameter of the plugin"),
            ("34:13", "expected job:NAME-N, job:NAME-N/checkpoint@STEP or model:NAME@VERSION"),
            ("38:13", "must be the whole value of init_from"),
        ],
    );
}

#[test]
fn a_preemptible_step_must_be_idempotent_or_checkpointed() {
    check(
        "",
        &[
            "name = \"a\"\ntask = \"u\"\npreemptible = true",
            "name = \"b\"\ntask = \"u\"\npreemptible = true\nidempotent = true",
            "name = \"c\"\ntask = \"t\"\npreemptible = true",
            "name = \"d\"\nkind = \"approve\"\npreemptible = true",
            "name = \"e\"\nplugin = \"a\"\npreemptible = true",
            "name = \"f\"\nplugin = \"a\"\npreemptible = true\nidempotent = true",
            // Equal content makes no second version.
            "name = \"g\"\nkind = \"data\"\ndataset = \"d\"\nfrom = \"job:a-1/output\"\npreemptible = true",
        ],
        &[
            ("16:15", "must be idempotent or checkpointed"),
            ("29:15", "cannot be preempted"),
            ("33:15", "must be idempotent or checkpointed"),
        ],
    );
}

#[test]
fn keys_that_a_kind_does_not_have_are_mistakes() {
    check(
        "params = { list = [1, 2], object = { a = 1 }, text = \"${run.id}\" }",
        &[
            "name = \"a.b\"\ntask = \"t\"\nmodel = \"m\"\nmax_parallel = 2",
            "name = \"b\"\nkind = \"deploy\"\nretry = 3",
            "name = \"c\"\nkind = \"approve\"\nfor_each = [1, 2]\nmessage = \"${params.list}\"",
            "name = \"c\"\ntask = \"t\"\nfor_each = \"${params.text}\"",
            "task = \"t\"",
        ],
        &[
            ("12:10", "parameter object: expected a number, text, boolean or list"),
            ("12:10", "parameter text: a default has no placeholders"),
            ("14:8", "invalid step name \"a.b\""),
            ("16:9", "has no model"),
            ("17:16", "max_parallel has no effect without for_each"),
            ("18:1", "is no job, and has options of jobs"),
            ("18:1", "needs from, the model version"),
            ("25:12", "a step of kind approve has no items"),
            ("26:11", "parameter list is a list, and message takes one value"),
            ("28:8", "two steps are called \"c\""),
            ("30:12", "parameter text is no list"),
            ("31:1", "[pipeline.n.step[4]] has no name"),
        ],
    );
}

#[test]
fn ten_thousand_steps_are_one_mistake() {
    let steps: String = (0..10_000).map(|n| format!("[[pipeline.n.step]]\nname = \"s{n}\"\ntask = \"t\"\n")).collect();
    let said = mistakes(&steps);
    assert!(said.contains("f:11:1: 10000 steps: a pipeline has at most 500") && said.lines().count() == 2, "{said}");
}

#[test]
fn pipelines_that_contain_themselves_or_grow_too_large_are_mistakes() {
    let nested = |name: &str| format!("[[pipeline.n.step]]\nname = \"{name}\"\npipeline = \"m\"\n");
    let said = mistakes(&format!("{}[[pipeline.m.step]]\nname = \"y\"\npipeline = \"n\"\n", nested("x")));
    assert!(said.contains("f:17:12: pipeline m contains itself: m -> n -> m"), "{said}");
    // Each level contains the one below twice: 2 to the power of 60 steps.
    let mut text = String::from("[[pipeline.n.step]]\nname = \"x\"\npipeline = \"l60\"\n");
    for level in 1..=60 {
        for half in ["a", "b"] {
            let inner = level - 1;
            text += &format!("[[pipeline.l{level}.step]]\nname = \"{half}\"\npipeline = \"l{inner}\"\n");
        }
    }
    text += "[[pipeline.l0.step]]\nname = \"a\"\ntask = \"t\"\n";
    let said = mistakes(&text);
    assert!(said.contains("levels with nested pipelines; at most 500 and 8"), "{said}");
    // A chain as deep as a file can be does not exhaust the stack.
    let mut text = String::from("[[pipeline.n.step]]\nname = \"x\"\npipeline = \"l9999\"\n");
    for level in 1..=9999 {
        text += &format!("[[pipeline.l{level}.step]]\nname = \"a\"\npipeline = \"l{}\"\n", level - 1);
    }
    text += "[[pipeline.l0.step]]\nname = \"a\"\ntask = \"t\"\n";
    assert!(mistakes(&text).contains("10000 steps and 10000 levels") || mistakes(&text).contains("levels"));
}

#[test]
fn nested_pipelines_become_their_steps() {
    let manifest = ProjectManifest::parse(include_str!("../../examples/full.toml")).unwrap();
    let nightly = &manifest.pipelines["nightly"];
    let names: Vec<&str> = nightly.expanded.iter().map(|it| it.step.name.as_str()).collect();
    assert_eq!(names, ["copydata", "train", "compare", "release/try", "release/ask", "release/serve"]);
    let serve = &nightly.expanded[5].step;
    assert_eq!(
        (&serve.after[..], serve.from_reference()),
        (&["compare".to_owned(), "release/ask".to_owned()][..], Some("model:lenet@1"))
    );
    assert_eq!(serve.when, [json!("${params.deploy}")]);
    let steps = nightly.expanded.iter().map(|it| it.step.clone()).collect();
    let plan =
        PipelinePlan { name: "nightly".to_owned(), project: "mnist".to_owned(), params: nightly.params.clone(), steps };
    let dependencies = plan.check().unwrap();
    assert_eq!(dependencies[1], [StepDependency { step: 0, uses_output: true }]);
    assert_eq!(dependencies[5].iter().map(|it| it.step).collect::<Vec<_>>(), [2, 4]);
    let read: PipelinePlan = serde_json::from_value(serde_json::to_value(&plan).unwrap()).unwrap();
    assert_eq!(read, plan);
}

#[test]
fn outputs_and_arguments_pass_through_nested_pipelines() {
    let text = format!(
        "{HEAD}params = {{ who = \"x\", go = true }}\n\
         [[pipeline.n.step]]\nname = \"sub\"\npipeline = \"inner\"\nargs = {{ tag = \"${{params.who}}\", skip = \"${{params.go}}\" }}\n\
         [[pipeline.n.step]]\nname = \"last\"\ntask = \"t\"\ninit_from = \"${{steps.sub.outputs.train.model}}\"\nafter = [\"sub\"]\n\
         [pipeline.inner]\nparams = {{ tag = \"d\", skip = false }}\n\
         [[pipeline.inner.step]]\nname = \"train\"\ntask = \"t\"\nargs = {{ name = \"a-${{params.tag}}-b\" }}\n\
         [[pipeline.inner.step]]\nname = \"serve\"\nkind = \"deploy\"\nfrom = \"${{steps.train.outputs.model}}\"\nwhen = \"!${{params.skip}}\"\n"
    );
    let manifest = ProjectManifest::parse(&text).unwrap_or_else(|found| panic!("{}", found.render("f")));
    let steps: BTreeMap<String, PipelineStep> =
        manifest.pipelines["n"].expanded.iter().map(|it| (it.step.name.clone(), it.step.clone())).collect();
    assert_eq!(steps["sub/train"].args["name"], "a-${params.who}-b");
    assert_eq!(steps["sub/serve"].from_reference(), Some("${steps.sub/train.outputs.model}"));
    assert_eq!(steps["sub/serve"].when, [json!("!${params.go}")]);
    assert_eq!(steps["last"].init_from.as_deref(), Some("${steps.sub/train.outputs.model}"));
    assert_eq!(steps["last"].after, ["sub/train", "sub/serve"]);
}

#[test]
fn conditions_pass_through_nested_pipelines() {
    let text = format!(
        "{HEAD}params = {{ least = 0.5, who = \"x\" }}\n\
         [[pipeline.n.step]]\nname = \"sub\"\npipeline = \"inner\"\n\
         args = {{ least = \"${{params.least}}\", tag = \"a b\", go = true }}\n\
         [pipeline.inner]\nparams = {{ least = 0.9, tag = \"d\", go = false }}\n\
         [[pipeline.inner.step]]\nname = \"eval\"\nplugin = \"a\"\n\
         [[pipeline.inner.step]]\nname = \"one\"\ntask = \"t\"\nwhen = \"${{steps.eval.outputs.accuracy}} >= ${{params.least}}\"\n\
         [[pipeline.inner.step]]\nname = \"two\"\ntask = \"t\"\nwhen = \"${{params.tag}} == 'a b'\"\n\
         [[pipeline.inner.step]]\nname = \"three\"\ntask = \"t\"\nwhen = \"!${{params.go}}\"\n"
    );
    let manifest = ProjectManifest::parse(&text).unwrap_or_else(|found| panic!("{}", found.render("f")));
    let when: Vec<Value> =
        manifest.pipelines["n"].expanded.iter().flat_map(|it| it.step.when.iter().cloned()).collect();
    let expected = ["${steps.sub/eval.outputs.accuracy} >= ${params.least}", "'a b' == 'a b'"];
    assert_eq!(when, [json!(expected[0]), json!(expected[1]), json!(false)]);
}

struct TestValues;

impl TemplateValues for TestValues {
    fn value_of(&self, reference: &PlaceholderReference) -> Option<Value> {
        match reference {
            PlaceholderReference::Parameter(name) if name == "n" => Some(json!(3)),
            PlaceholderReference::RunId => Some(json!("01AB")),
            PlaceholderReference::Item => Some(json!([1, 2])),
            _ => None,
        }
    }
}

#[test]
fn a_placeholder_alone_keeps_its_type_and_dollars_can_be_escaped() {
    let render = |text: &str| render_template(&json!({ "a": [text] }), &TestValues).map(|value| value["a"][0].clone());
    assert_eq!(render("${params.n}"), Ok(json!(3)));
    assert_eq!(render("at ${params.n} of ${run.id}"), Ok(json!("at 3 of 01AB")));
    assert_eq!(render("${item}"), Ok(json!([1, 2])));
    assert_eq!(render("$${params.n} costs $5"), Ok(json!("${params.n} costs $5")));
    assert_eq!(render("x${item}"), Err("${item} has no value".to_owned()));
    assert_eq!(render("${steps.a.outputs.b}"), Err("${steps.a.outputs.b} has no value".to_owned()));
}

#[test]
fn given_parameters_have_the_types_of_the_defaults() {
    let defaults = json!({ "steps": 3, "deploy": true, "who": "x", "rates": [0.1], "tags": [] });
    let defaults = defaults.as_object().unwrap();
    let parse = |name: &str, text: &str| parse_parameter_text(defaults, name, text);
    assert_eq!(parse("steps", "100"), Ok(json!(100)));
    assert_eq!(parse("who", "100"), Ok(json!("100")));
    assert_eq!(parse("deploy", "false"), Ok(json!(false)));
    assert_eq!(parse("rates", "0.5, 1"), Ok(json!([0.5, 1])));
    assert_eq!(parse("tags", "a,1"), Ok(json!(["a", "1"])));
    assert_eq!(parse("tags", "[\"b\"]"), Ok(json!(["b"])));
    assert!(matches!(parse("steps", "many"), Err(ParameterError::Type { .. })));
    let unknown = parse("step", "3").unwrap_err().to_string();
    assert_eq!(unknown, "there is no parameter \"step\"; the parameters are steps, deploy, who, rates, tags");
    let bind = |given: Value| bind_parameters(defaults, given.as_object().unwrap());
    assert_eq!(bind(json!({ "steps": 1.5 })).unwrap()["steps"], 1.5);
    for wrong in [json!({ "steps": "3" }), json!({ "who": null }), json!({ "rates": [[1]] }), json!({ "x": 1 })] {
        assert!(bind(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn a_plan_from_a_client_is_checked_as_a_file_is() {
    let plan = |steps: Value| -> Result<StepDependencies, Vec<PlanMistake>> {
        let plan = json!({ "name": "n", "project": "p", "steps": steps });
        serde_json::from_value::<PipelinePlan>(plan).unwrap().check()
    };
    assert!(plan(json!([{ "name": "a" }])).is_ok());
    let refused = plan(json!([{ "name": "a", "kind": "pipeline" }])).unwrap_err();
    assert_eq!((refused[0].step, refused[0].key), (Some(0), "kind"));
    let many: Vec<Value> = (0..=PIPELINE_STEPS_MAX).map(|n| json!({ "name": format!("s{n}") })).collect();
    assert!(plan(json!(many)).unwrap_err()[0].message.contains("at most 500"));
    assert!(plan(json!([])).unwrap_err()[0].message.contains("no steps"));
    let preemptible = json!([{ "name": "a", "spec": { "preemptible": true } }]);
    assert_eq!(plan(preemptible).unwrap_err()[0].key, "preemptible");
    let list: Vec<Value> = (0..256).map(|n| json!(n)).collect();
    let wide: Vec<Value> = (0..8).map(|n| json!({ "name": format!("s{n}"), "for_each": list })).collect();
    assert!(plan(json!(wide)).unwrap_err()[0].message.contains("2048 steps with all items"));
    let evil = json!([{ "name": "../x", "after": ["a\u{7f}".repeat(500)], "data": [{ "from": "d", "to": "x" }] }]);
    assert_eq!(plan(evil).unwrap_err().len(), 3);
}
