"""Checks files of deployments with the schemas of others: deployment_schemas.py kubernetes|compose FILE, or same FILE FILE.

kubernetes: every object is valid, without unknown fields, in the schemas of two versions of Kubernetes or of its operator.
compose: the file is valid in the specification of Compose, without unknown fields.
same: both streams of Kubernetes objects have the same objects.
"""

import importlib
import re
import sys

import compose_spec
import kubernetes_validate
import yaml

VERSIONS = ("1.35", "1.37")
OPERATORS = {"keda.sh/v1alpha1": "keda.v1alpha1", "monitoring.coreos.com/v1": "prometheus_operator.v1"}


def objects(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def check_object(document):
    operator = OPERATORS.get(document["apiVersion"])
    if operator is None:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
        return
    model = getattr(importlib.import_module(f"cloudcoil.models.{operator}"), document["kind"])
    model.model_validate(document, extra="forbid")


def is_refused(document):
    try:
        check_object(document)
    except Exception:
        return True
    return False


def kubernetes(path):
    for document in objects(path):
        check_object(document)
        if "spec" in document:
            # The check would find a wrong field.
            assert is_refused({**document, "spec": {**document["spec"], "noSuchField": 1}}), document["kind"]
        print(document["kind"], document["metadata"]["name"])


def compose(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # The parser expects merged mappings, and variables with their values.
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")
    merged = yaml.safe_dump(yaml.safe_load(text))
    parsed = compose_spec.PyCompose.from_yaml(merged)
    try:
        compose_spec.PyCompose.from_yaml(merged.replace("stop_grace_period", "no_such_field"))
    except ValueError:
        print(*sorted(parsed.service_names()))
        return
    raise AssertionError("an unknown field is accepted")


def same(first, second):
    def by_name(path):
        return {(document["kind"], document["metadata"]["name"]): document for document in objects(path)}

    one, other = by_name(first), by_name(second)
    assert one.keys() == other.keys(), set(one) ^ set(other)
    for name, document in one.items():
        assert document == other[name], (name, document, other[name])
    print(len(one))


{"kubernetes": kubernetes, "compose": compose, "same": same}[sys.argv[1]](*sys.argv[2:])
