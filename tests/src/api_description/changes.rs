//! The differences between two descriptions: those that break existing clients, and additions.

use std::collections::BTreeMap;

use super::{DocumentShape, FieldShape, InterfaceShape, OperationShape};

/// The differences between a recorded interface and the present one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterfaceChanges {
    /// Changes that existing clients notice: each says where, what, and who is affected.
    pub breaking: Vec<String>,
    /// Additions and other changes that no client notices.
    pub additions: Vec<String>,
}

/// Who writes a document.
#[derive(Clone, Copy, PartialEq)]
enum DocumentRole {
    /// The client.
    Request,
    /// The server.
    Response,
}

/// Compares the recorded interface with the present one.
pub fn compare(recorded: &InterfaceShape, present: &InterfaceShape) -> InterfaceChanges {
    let mut changes = InterfaceChanges::default();
    for (name, before) in &recorded.operations {
        match present.operations.get(name) {
            Some(now) => changes.compare_operations(name, before, now),
            None => changes.breaking.push(format!("{name}: the operation was removed")),
        }
    }
    changes.add_new(&recorded.operations, &present.operations, |name| format!("{name}: a new operation"));
    for (role, before, now) in [
        (DocumentRole::Request, &recorded.request_schemas, &present.request_schemas),
        (DocumentRole::Response, &recorded.response_schemas, &present.response_schemas),
    ] {
        let what = if role == DocumentRole::Request { "request" } else { "response" };
        for (name, before) in before {
            // A schema that nothing refers to any more is missed where it was referred to.
            if let Some(now) = now.get(name) {
                changes.compare_documents(&format!("{name} in a {what}"), role, before, now);
            }
        }
        changes.add_new(before, now, |name| format!("{name}: a new schema of a {what}"));
    }
    changes
}

impl InterfaceChanges {
    fn add_new<T>(&mut self, before: &BTreeMap<String, T>, now: &BTreeMap<String, T>, say: impl Fn(&str) -> String) {
        self.additions.extend(now.keys().filter(|name| !before.contains_key(*name)).map(|name| say(name)));
    }

    fn compare_operations(&mut self, name: &str, before: &OperationShape, now: &OperationShape) {
        self.compare_documents(
            &format!("{name}, parameter"),
            DocumentRole::Request,
            &before.parameters,
            &now.parameters,
        );
        match (before.body_required, now.body_required) {
            (None | Some(false), Some(true)) => self.breaking.push(format!("{name}: a body is required now")),
            (Some(_), None) => self.breaking.push(format!("{name}: a body is not accepted any more")),
            (before, now) if before != now => self.additions.push(format!("{name}: a body is optional now")),
            _ => {}
        }
        for (role, what, before, now) in [
            (DocumentRole::Request, "accepts", &before.request, &now.request),
            (DocumentRole::Response, "answers", &before.responses, &now.responses),
        ] {
            for (form, before) in before {
                match now.get(form) {
                    Some(now) => self.compare_documents(&format!("{name} {what} {form}"), role, before, now),
                    None => self.breaking.push(format!("{name}: no longer {what} {form}")),
                }
            }
            self.add_new(before, now, |form| format!("{name}: {what} {form} too"));
        }
    }

    fn compare_documents(&mut self, place: &str, role: DocumentRole, before: &DocumentShape, now: &DocumentShape) {
        for (path, before) in before {
            let place = format!("{place} {path}");
            match now.get(path) {
                Some(now) => self.compare_fields(&place, role, before, now),
                None => self.breaking.push(match role {
                    DocumentRole::Request => format!("{place}: removed, so clients that send it are refused"),
                    DocumentRole::Response => format!("{place}: removed, and clients read it"),
                }),
            }
        }
        for (path, field) in now.iter().filter(|(path, _)| !before.contains_key(*path)) {
            // A member of a new member comes with it; only members of known objects can be missing in requests.
            let parent = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
            let is_known = before.contains_key(parent) || before.is_empty() || !path.contains('.');
            if role == DocumentRole::Request && field.required && is_known && !path.ends_with("[]") {
                self.breaking.push(format!("{place} {path}: new and required, so requests without it are refused"));
            } else {
                self.additions.push(format!("{place} {path}: new"));
            }
        }
    }

    fn compare_fields(&mut self, place: &str, role: DocumentRole, before: &FieldShape, now: &FieldShape) {
        if before == now {
            return;
        }
        let count = self.breaking.len();
        let missing = |of: &FieldShape, other: &FieldShape| {
            of.types.difference(&other.types).cloned().collect::<Vec<_>>().join(", ")
        };
        match role {
            DocumentRole::Request => {
                let lost = missing(before, now);
                if !lost.is_empty() && !now.types.contains("any") {
                    self.breaking.push(format!("{place}: no longer accepts {lost}"));
                }
                if now.required && !before.required {
                    self.breaking.push(format!("{place}: required now, so requests without it are refused"));
                }
                if let Some(values) = &now.values {
                    let lost =
                        before.values.as_ref().map(|before| before.difference(values).cloned().collect::<Vec<_>>());
                    match lost {
                        None => self.breaking.push(format!("{place}: accepts only certain values now")),
                        Some(lost) if !lost.is_empty() => {
                            self.breaking.push(format!("{place}: no longer accepts the value {}", lost.join(", ")));
                        }
                        Some(_) => {}
                    }
                }
            }
            DocumentRole::Response => {
                let new = missing(now, before);
                if !new.is_empty() && !before.types.contains("any") {
                    self.breaking.push(format!("{place}: can be {new} now, which clients do not expect"));
                }
                if before.required && !now.required {
                    self.breaking.push(format!("{place}: can be missing now, and clients read it"));
                }
            }
        }
        if self.breaking.len() == count {
            self.additions.push(format!("{place}: changed compatibly"));
        }
    }
}
