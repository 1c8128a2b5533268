//! `saggar data recipe`: well-known datasets. A recipe downloads nothing: its data is in this program, is generated, or is
//! in files that the user has.

mod generated;
mod user_files;

use std::path::Path;

use serde::Serialize;

use super::push;
use crate::args::RecipeCommand;
use crate::client::ApiClient;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::temp_directory::TempDirectory;
use user_files::NeededFile;

/// Where the data of a recipe comes from.
enum RecipeSource {
    /// Files inside this program, by name.
    Embedded(&'static [(&'static str, &'static [u8])]),
    /// A function that returns a CSV file, which a `dataset.json` describes.
    Generated { description: &'static str, table: fn() -> String },
    /// Files of the user.
    UserFiles(&'static [NeededFile]),
}

/// A recipe.
struct DatasetRecipe {
    name: &'static str,
    about: &'static str,
    source: RecipeSource,
}

static RECIPES: [DatasetRecipe; 6] = [
    DatasetRecipe {
        name: "digits",
        about: "1,797 handwritten digits of 8x8 pixels, 10 classes (UCI, test set)",
        source: RecipeSource::Embedded(&[
            ("digits.csv.gz", include_bytes!("../../../../../examples/digits/digits.csv.gz")),
            ("dataset.json", include_bytes!("../../../../../examples/digits/dataset.json")),
            ("LICENSE-BSD-3-Clause", include_bytes!("../../../../../examples/digits/LICENSE-BSD-3-Clause")),
        ]),
    },
    DatasetRecipe {
        name: "moons",
        about: "2,000 points on two half circles, 2 classes",
        source: RecipeSource::Generated { description: generated::MOONS, table: generated::moons },
    },
    DatasetRecipe {
        name: "spirals",
        about: "3,000 points on three spirals, 3 classes",
        source: RecipeSource::Generated { description: generated::SPIRALS, table: generated::spirals },
    },
    DatasetRecipe {
        name: "mnist",
        about: "70,000 handwritten digits of 28x28 pixels, 10 classes",
        source: RecipeSource::UserFiles(&user_files::MNIST),
    },
    DatasetRecipe {
        name: "fashion-mnist",
        about: "70,000 pictures of clothes of 28x28 pixels, 10 classes",
        source: RecipeSource::UserFiles(&user_files::FASHION_MNIST),
    },
    DatasetRecipe {
        name: "cifar10",
        about: "60,000 colour pictures of 32x32 pixels, 10 classes (binary version)",
        source: RecipeSource::UserFiles(&user_files::CIFAR_10),
    },
];

/// A recipe as JSON.
#[derive(Serialize)]
struct RecipeEntry {
    recipe: &'static str,
    about: &'static str,
    /// `program`, `generated` or `files`.
    source: &'static str,
    /// The files that the user gives; a file can also have the ending .gz.
    files: Vec<&'static str>,
}

impl DatasetRecipe {
    fn entry(&self) -> RecipeEntry {
        let (source, files) = match &self.source {
            RecipeSource::Embedded(_) => ("program", Vec::new()),
            RecipeSource::Generated { .. } => ("generated", Vec::new()),
            RecipeSource::UserFiles(files) => ("files", files.iter().map(|file| file.name).collect()),
        };
        RecipeEntry { recipe: self.name, about: self.about, source, files }
    }
}

pub(super) fn recipe(args: &RecipeCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        RecipeCommand::Ls => {
            list_recipes(output);
            Ok(())
        }
        RecipeCommand::Add { recipe, from, name } => {
            let recipe = find_recipe(recipe)?;
            add_recipe(recipe, from.as_deref(), name.as_deref().unwrap_or(recipe.name), client, output)
        }
    }
}

fn find_recipe(name: &str) -> Result<&'static DatasetRecipe, CliError> {
    RECIPES.iter().find(|recipe| recipe.name == name).ok_or_else(|| {
        let known: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        CliError::new(exit::NOT_FOUND, "not_found", format!("there is no recipe {name}"))
            .with_hint(format!("there are: {}; `saggar data recipe ls` describes them", known.join(", ")))
    })
}

fn list_recipes(output: CliOutput) {
    let entries: Vec<RecipeEntry> = RECIPES.iter().map(DatasetRecipe::entry).collect();
    if output.json {
        output.print_json(&entries);
        return;
    }
    if output.quiet {
        entries.iter().for_each(|entry| output.print_line(entry.recipe));
        return;
    }
    let row = |entry: &RecipeEntry| {
        let needs = match entry.source {
            "files" => entry.files.join(", "),
            _ => "-".to_owned(),
        };
        vec![entry.recipe.to_owned(), entry.about.to_owned(), needs]
    };
    output.print_table(&["RECIPE", "WHAT IT IS", "FILES THAT IT NEEDS"], &entries.iter().map(row).collect::<Vec<_>>());
    output.print_note("Next: saggar data recipe add RECIPE [--from DIR]");
}

fn add_recipe(
    recipe: &DatasetRecipe,
    from: Option<&Path>,
    dataset: &str,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let files: Vec<(&str, Vec<u8>)> = match &recipe.source {
        RecipeSource::UserFiles(needed) => {
            let paths = user_files::find_files(recipe.name, needed, from)?;
            let root = from.unwrap_or(Path::new(""));
            return push::push_files(root, &paths, dataset, client, output);
        }
        RecipeSource::Embedded(files) => files.iter().map(|(name, content)| (*name, content.to_vec())).collect(),
        RecipeSource::Generated { description, table } => {
            vec![("dataset.json", description.as_bytes().to_vec()), ("points.csv", table().into_bytes())]
        }
    };
    if from.is_some() {
        return Err(CliError::invalid(format!("{} needs no files; leave --from out", recipe.name)));
    }
    let folder = write_files(&files)?;
    push::push_folder(folder.path(), dataset, client, output)
}

/// Writes the files of a recipe into a temporary directory.
fn write_files(files: &[(&str, Vec<u8>)]) -> Result<TempDirectory, CliError> {
    let folder = TempDirectory::create("recipe")?;
    for (name, content) in files {
        let path = folder.path().join(name);
        let failed = |error| CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()));
        std::fs::write(&path, content).map_err(failed)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_of_this_program_is_a_dataset() {
        for recipe in &RECIPES {
            let files: Vec<(&str, Vec<u8>)> = match &recipe.source {
                RecipeSource::UserFiles(files) => {
                    assert!(!files.is_empty(), "{}", recipe.name);
                    continue;
                }
                RecipeSource::Embedded(files) => {
                    files.iter().map(|(name, content)| (*name, content.to_vec())).collect()
                }
                RecipeSource::Generated { description, table } => {
                    assert_eq!(table(), table(), "{}: the same points every time", recipe.name);
                    vec![("dataset.json", description.as_bytes().to_vec()), ("points.csv", table().into_bytes())]
                }
            };
            let folder = write_files(&files).unwrap();
            let place = tempfile::tempdir().unwrap();
            let made = saggar_store::DatasetStore::new(place.path()).ingest(recipe.name, folder.path(), 0).unwrap();
            assert!(made.items >= 1_000 && made.splits.len() == 2, "{}: {made:?}", recipe.name);
            let path = folder.path().to_owned();
            drop(folder);
            assert!(!path.exists());
        }
    }
}
