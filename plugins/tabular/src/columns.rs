//! The fields of a table by their roles: numbers, classes, and the target.

use saggar_plugin::{
    Classes, DataType, Dataset, Error, Field, Json, Params, Result, data_type_name, info, parse_data_type,
};

use crate::column_reader::largest_label;

/// The fields that are predicted if no parameter names one, in the order in which they are looked for.
const TARGETS: [&str; 2] = ["label", "target"];

/// A field of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberColumn {
    /// The name of the field.
    pub name: String,
    /// The data type of its numbers.
    pub data_type: DataType,
    /// The shape of an item.
    pub shape: Vec<u32>,
}

/// A field of class numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct CategoryColumn {
    /// The name of the field.
    pub name: String,
    /// The data type of the class numbers.
    pub data_type: DataType,
    /// The classes.
    pub classes: Classes,
}

/// The field that is predicted.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetColumn {
    /// A class.
    Classes {
        /// The name of the field.
        name: String,
        /// The classes.
        classes: Classes,
    },
    /// A number.
    Quantity {
        /// The name of the field.
        name: String,
    },
}

impl TargetColumn {
    /// Returns the name of the field.
    pub fn name(&self) -> &str {
        match self {
            Self::Classes { name, .. } | Self::Quantity { name } => name,
        }
    }
}

/// The inputs and the target of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumns {
    /// The fields of numbers.
    pub numbers: Vec<NumberColumn>,
    /// The fields of classes.
    pub categories: Vec<CategoryColumn>,
    /// The field that is predicted.
    pub target: TargetColumn,
}

impl TableColumns {
    /// Returns the roles of a dataset's fields. Without a name, the target is the field `label`, else `target`. An
    /// integer target is a class, a float target a quantity. Fields of texts are not inputs.
    ///
    /// # Errors
    /// Returns `NoSuch`, with the fields of the dataset, if there is no target; `Shape` if the target is not a single
    /// number, or no field is left as an input.
    pub fn of(data: &Dataset, target: Option<String>) -> Result<Self> {
        let fields = data.fields();
        let target = match target {
            Some(name) => data.field(&name)?,
            None => find_target(&fields)?,
        };
        if !target.item.shape.is_empty() {
            let what = format!("the field `{}`, which is predicted,", target.name);
            return Err(Error::Shape { what, expected: "a single number or class", given: target.item.shape });
        }
        let (mut numbers, mut categories) = (Vec::new(), Vec::new());
        for field in fields.into_iter().filter(|field| field.name != target.name) {
            let Field { name, item, classes } = field;
            if !classes.is_empty() && item.shape.is_empty() {
                categories.push(CategoryColumn { name, data_type: item.data_type, classes: Classes::new(classes) });
            } else if item.data_type == DataType::Uint8 && item.shape.len() == 1 {
                info(&format!("the field `{name}` is not used: texts are not read"));
            } else {
                numbers.push(NumberColumn { name, data_type: item.data_type, shape: item.shape });
            }
        }
        if numbers.is_empty() && categories.is_empty() {
            let what = format!("the dataset's fields besides `{}`", target.name);
            return Err(Error::Shape { what, expected: "numbers or classes", given: Vec::new() });
        }
        Ok(Self { numbers, categories, target: target_column(data, target)? })
    }

    /// Returns the names of all fields, the target last.
    pub fn names(&self) -> Vec<&str> {
        let numbers = self.numbers.iter().map(|column| column.name.as_str());
        let categories = self.categories.iter().map(|column| column.name.as_str());
        numbers.chain(categories).chain([self.target.name()]).collect()
    }

    /// Returns the columns in one line.
    pub fn describe(&self) -> String {
        let count: u32 = self.numbers.iter().map(|column| column.shape.iter().product::<u32>()).sum();
        let (classes, target) = (self.categories.len(), self.target.name());
        let kind = match &self.target {
            TargetColumn::Classes { classes, .. } => format!("{} classes", classes.count()),
            TargetColumn::Quantity { .. } => "a number".to_owned(),
        };
        format!("inputs: {count} numbers, {classes} columns of classes; predicted: {target}, {kind}")
    }

    /// Reads the columns from the configuration of a model version.
    ///
    /// # Errors
    /// Returns `MissingParameter` or `Parameter` if a value is missing or invalid.
    pub fn from_params(config: &Params) -> Result<Self> {
        let names: Vec<String> = config.require("numbers")?;
        let shapes: Vec<Vec<u32>> = config.require("shapes")?;
        let types: Vec<String> = config.require("number_types")?;
        let numbers = names.into_iter().zip(shapes).zip(types).map(|((name, shape), data_type)| {
            Ok(NumberColumn { name, shape, data_type: read_data_type("number_types", &data_type)? })
        });
        let names: Vec<String> = config.require("categories")?;
        let classes: Vec<Classes> = config.require("category_classes")?;
        let types: Vec<String> = config.require("category_types")?;
        let categories = names.into_iter().zip(classes).zip(types).map(|((name, classes), data_type)| {
            Ok(CategoryColumn { name, classes, data_type: read_data_type("category_types", &data_type)? })
        });
        let name = config.require("target")?;
        let target = match config.optional("classes")? {
            Some(classes) => TargetColumn::Classes { name, classes },
            None => TargetColumn::Quantity { name },
        };
        Ok(Self { numbers: numbers.collect::<Result<_>>()?, categories: categories.collect::<Result<_>>()?, target })
    }

    /// Adds the columns to the configuration of a model version.
    #[must_use]
    pub fn add_to_params(&self, params: Params) -> Params {
        let numbers = &self.numbers;
        let categories = &self.categories;
        let list = |texts: Vec<String>| Json::from(texts);
        let params = params
            .with("numbers", list(numbers.iter().map(|column| column.name.clone()).collect()))
            .with("shapes", numbers.iter().map(|column| column.shape.clone()).collect::<Vec<_>>())
            .with(
                "number_types",
                list(numbers.iter().map(|column| data_type_name(column.data_type).to_owned()).collect()),
            )
            .with("categories", list(categories.iter().map(|column| column.name.clone()).collect()))
            .with("category_classes", categories.iter().map(|column| Json::from(&column.classes)).collect::<Vec<_>>())
            .with(
                "category_types",
                list(categories.iter().map(|column| data_type_name(column.data_type).to_owned()).collect()),
            )
            .with("target", self.target.name());
        match &self.target {
            TargetColumn::Classes { classes, .. } => params.with("classes", classes),
            TargetColumn::Quantity { .. } => params,
        }
    }
}

fn read_data_type(parameter: &str, text: &str) -> Result<DataType> {
    parse_data_type(text).ok_or_else(|| Error::Parameter {
        name: parameter.to_owned(),
        expected: "names of data types".to_owned(),
        given: text.to_owned(),
    })
}

fn find_target(fields: &[Field]) -> Result<Field> {
    let named = |name: &&str| fields.iter().find(|field| field.name == **name).cloned();
    TARGETS.iter().find_map(named).ok_or_else(|| Error::NoSuch {
        what: "field",
        name: format!("{}` or `{}", TARGETS[0], TARGETS[1]),
        known: fields.iter().map(|field| field.name.clone()).collect(),
    })
}

/// Returns the target. If its classes have no names, they are numbered up to the largest label.
fn target_column(data: &Dataset, field: Field) -> Result<TargetColumn> {
    let name = field.name.clone();
    if matches!(field.item.data_type, DataType::Float32 | DataType::Float16) {
        return Ok(TargetColumn::Quantity { name });
    }
    let count = if field.classes.is_empty() { largest_label(data, &field)? + 1 } else { 0 };
    Ok(TargetColumn::Classes { name, classes: Classes::of(&field, count) })
}
