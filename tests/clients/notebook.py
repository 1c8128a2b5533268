"""Runs a notebook, its second argument being the folder that it runs in, and prints what its cells print."""

import sys

import nbformat
from nbclient import NotebookClient

path, folder = sys.argv[1:]
notebook = nbformat.read(path, as_version=4)
NotebookClient(notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text") or output.get("data", {}).get("text/plain", ""))
