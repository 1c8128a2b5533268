"""Checks documents against a JSON Schema.

    validate.py SCHEMA DOCUMENTS     DOCUMENTS is a JSON array; prints an array with the first error of each, or null
"""

import json
import pathlib
import sys

import jsonschema

schema, documents = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:3])
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
errors = [next(validator.iter_errors(document), None) for document in documents]
print(json.dumps([error and error.message for error in errors]))
