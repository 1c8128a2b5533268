//! Writes charts into files: whole or not at all, and over a file only if that was requested.

use std::path::Path;

use saggar_charts::{ChartError, ChartPanel, ChartPicture};
use serde::Serialize;

use crate::args::{ChartFileArgs, ChartLookArgs};
use crate::atomic_file;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The width of a picture, in pixels, if none is given.
const WIDTH_DEFAULT: u32 = 800;

/// A chart that was written, as JSON.
#[derive(Serialize)]
pub(crate) struct WrittenChart {
    pub(crate) file: String,
    bytes: u64,
    width: u32,
    height: u32,
}

impl ChartFileArgs {
    /// Returns whether a chart is to be written.
    pub(crate) fn is_requested(&self) -> bool {
        self.png.is_some() || self.svg.is_some()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.png, &self.svg].into_iter().flatten().map(|path| path.as_path())
    }

    /// Checks that options about curves are given with a file, for commands that draw nothing else.
    ///
    /// # Errors
    /// `usage` otherwise.
    pub(crate) fn check_look(&self, look: &ChartLookArgs) -> Result<(), CliError> {
        if self.is_requested() || !(look.curves.log || look.curves.smooth > 0.0) {
            return Ok(());
        }
        let option = if look.curves.log { "--log" } else { "--smooth" };
        Err(CliError::new(exit::USAGE, "usage", format!("{option} is about a chart, and none is drawn"))
            .with_hint("add `--png FILE` or `--svg FILE`"))
    }

    /// Checks that no file would be replaced, before anything is fetched.
    ///
    /// # Errors
    /// `exists`, unless files are to be replaced.
    pub(crate) fn check_absent(&self, look: &ChartLookArgs) -> Result<(), CliError> {
        match self.paths().find(|path| path.exists() && !look.force) {
            None => Ok(()),
            Some(path) => {
                let message = format!("{} is there already", path.display());
                Err(CliError::new(exit::CONFLICT, "exists", message).with_hint("--force replaces it"))
            }
        }
    }

    /// Draws panels below each other, writes the files, and prints their paths.
    ///
    /// # Errors
    /// As [`ChartFileArgs::write_files`].
    pub(crate) fn write(
        &self,
        look: &ChartLookArgs,
        drawn: (String, Vec<ChartPanel>),
        output: CliOutput,
    ) -> Result<(), CliError> {
        let written = self.write_files(look, drawn)?;
        match output.json {
            true => output.print_json_or_list(&written),
            false => written.iter().for_each(|one| output.print_line(&one.file)),
        }
        Ok(())
    }

    /// Draws panels below each other and writes the files.
    ///
    /// # Errors
    /// The size is not valid, or a file cannot be written; it is then as it was.
    pub(crate) fn write_files(
        &self,
        look: &ChartLookArgs,
        (title, panels): (String, Vec<ChartPanel>),
    ) -> Result<Vec<WrittenChart>, CliError> {
        let height = look.height.unwrap_or_else(|| height_of(panels.len()));
        let picture = ChartPicture { title, panels, width: look.width.unwrap_or(WIDTH_DEFAULT), height };
        let mut written = Vec::new();
        if let Some(path) = &self.png {
            written.push(write_file(path, &picture.render_png().map_err(invalid_picture)?, &picture)?);
        }
        if let Some(path) = &self.svg {
            let drawing = picture.render_svg().map_err(invalid_picture)?;
            written.push(write_file(path, drawing.as_bytes(), &picture)?);
        }
        Ok(written)
    }
}

/// Returns the height of a picture, in pixels, by the number of its charts.
fn height_of(panels: usize) -> u32 {
    match u32::try_from(panels).unwrap_or(u32::MAX) {
        0 | 1 => 500,
        2 => 860,
        panels => panels.saturating_mul(300).saturating_add(40),
    }
}

fn invalid_picture(error: ChartError) -> CliError {
    let hint = match error {
        ChartError::PictureSize { .. } => "`--width 800 --height 500` is a usual size",
        ChartError::PanelHeight { .. } => "give a larger --height, or fewer series with --series",
        ChartError::PanelCount { .. } | ChartError::Drawing { .. } | ChartError::Encoding(_) => {
            return CliError::new(exit::UNEXPECTED, "chart", error.to_string());
        }
    };
    CliError::invalid(error.to_string()).with_hint(hint)
}

fn write_file(path: &Path, content: &[u8], picture: &ChartPicture) -> Result<WrittenChart, CliError> {
    let part = atomic_file::partial_path(path);
    let written = std::fs::write(&part, content).and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", path.display()))
            .with_hint("name a file in a directory that exists and that this user can write to")
    })?;
    Ok(WrittenChart {
        file: path.display().to_string(),
        bytes: content.len() as u64,
        width: picture.width,
        height: picture.height,
    })
}
