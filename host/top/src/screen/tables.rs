//! The tables of jobs, models and devices.

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use saggar_charts::format_bytes;

use super::{ScreenPainter, row_of, short_host};
use crate::documents::{DeviceFigures, JobFigures, ModelFigures};
use crate::quantity_text::{UNKNOWN, bar, duration, milliseconds, number_or_dash, short_number};
use crate::screen_areas::ScreenTarget;
use crate::table_layout::{ScreenColumn, TableCell, draw_headers, draw_row, place_columns};
use crate::top_view::TopView;

/// The column that gets the rest of a line, and its maximum characters: the name, or the owners of a device's memory.
const WIDE_NAME: (usize, u16) = (0, 40);
const WIDE_OWNERS: (usize, u16) = (4, 120);
/// Characters of a bar.
const BAR_COLUMNS: usize = 10;

/// A row: its cells, and whether its server answers.
struct TableRow {
    cells: Vec<TableCell>,
    is_current: bool,
}

impl ScreenPainter<'_> {
    /// Returns the rows that the table needs, its header included.
    pub(super) fn table_rows(&self) -> u16 {
        u16::try_from(self.rows().len() + 2).unwrap_or(u16::MAX)
    }

    pub(super) fn draw_table(&mut self, area: Rect) {
        let (columns, rows) = (self.columns(), self.rows());
        let wide = if self.state.view == TopView::Devices { WIDE_OWNERS } else { WIDE_NAME };
        let placed = place_columns(&columns, area.width, wide);
        draw_headers(self.buffer, area, &columns, &placed, self.palette.bold());
        if rows.is_empty() {
            let text = self.empty_text();
            let style = self.palette.dim();
            return self.text(area.x, area.y + 1, area.width, text, style);
        }
        let visible = usize::from(area.height.saturating_sub(1));
        let selected = self.state.selected_row(self.state.view);
        let first = (selected + 1).saturating_sub(visible).min(rows.len().saturating_sub(visible));
        for (line, (at, row)) in (1..).zip(rows.iter().enumerate().skip(first).take(visible)) {
            let place = row_of(area, line);
            self.areas.add(place, ScreenTarget::Row(at));
            draw_row(self.buffer, place, &columns, &placed, &row.cells);
            if !row.is_current {
                self.buffer.set_style(place, self.palette.dim());
            }
            if at == selected {
                self.buffer.set_style(place, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
    }

    fn empty_text(&self) -> &'static str {
        if self.state.now_ms() == 0 {
            return "waiting for the first refresh";
        }
        match self.state.view {
            TopView::Jobs => "no jobs; `saggar run PLUGIN --data DATASET` starts one",
            TopView::Models => "no models; jobs publish them, and `saggar import` reads ONNX files",
            TopView::Devices | TopView::Charts => "no devices",
        }
    }

    fn columns(&self) -> Vec<ScreenColumn> {
        let mut columns = match self.state.view {
            TopView::Jobs => vec![
                ScreenColumn::left("JOB", 12, 0),
                ScreenColumn::left("STATE", 9, 1),
                ScreenColumn::left("PROGRESS", 15, 2),
                ScreenColumn::right("STEPS/S", 8, 4),
                ScreenColumn::right(&self.state.job_metric().to_uppercase(), 10, 3),
                ScreenColumn::left("DEVICE", 9, 6),
                ScreenColumn::right("TIME", 8, 5),
                ScreenColumn::right("ATTEMPT", 7, 8),
                ScreenColumn::right("STEP", 17, 7),
            ],
            TopView::Models => vec![
                ScreenColumn::left("MODEL", 12, 0),
                ScreenColumn::left("STATE", 8, 1),
                ScreenColumn::right("REQ/S", 7, 2),
                ScreenColumn::right("P50", 8, 4),
                ScreenColumn::right("P99", 8, 3),
                ScreenColumn::right("QUEUE", 5, 5),
                ScreenColumn::right("BATCH", 5, 6),
                ScreenColumn::right("ERR/S", 6, 3),
                ScreenColumn::right("VERSION", 7, 7),
            ],
            TopView::Devices | TopView::Charts => vec![
                ScreenColumn::left("DEVICE", 10, 0),
                ScreenColumn::right("BUSY", 5, 1),
                ScreenColumn::left("", 10, 4),
                ScreenColumn::right("MEMORY", 10, 2),
                ScreenColumn::left("OF", 24, 3),
                ScreenColumn::left("ADAPTER", 28, 5),
            ],
        };
        if self.state.hosts().len() > 1 {
            columns.push(ScreenColumn::left("SERVER", 22, 3));
        }
        columns
    }

    fn rows(&self) -> Vec<TableRow> {
        let mut rows = Vec::new();
        for host in self.state.hosts() {
            let document = &host.document;
            let cells: Vec<Vec<TableCell>> = match self.state.view {
                TopView::Jobs => document.jobs.iter().map(|job| self.job_cells(job)).collect(),
                TopView::Models => document.models.iter().map(|model| self.model_cells(model)).collect(),
                TopView::Devices => document.devices.iter().map(device_cells).collect(),
                TopView::Charts => Vec::new(),
            };
            let server = (short_host(&document.host), Style::new());
            rows.extend(cells.into_iter().map(|mut cells| {
                cells.push(server.clone());
                TableRow { cells, is_current: host.error.is_none() }
            }));
        }
        rows
    }

    fn job_cells(&self, job: &JobFigures) -> Vec<TableCell> {
        let metric = job.metrics.get(&self.state.job_metric());
        let metric = metric
            .map_or(UNKNOWN.to_owned(), |value| value.map_or("not finite".to_owned(), |it| number_or_dash(Some(it))));
        let rate = job.steps_per_second.filter(|_| job.is_active()).map_or(UNKNOWN.to_owned(), short_number);
        let step = match job.steps_target {
            0 => job.step.to_string(),
            target => format!("{}/{target}", job.step),
        };
        let texts = [
            job.name.clone(),
            job.state.clone(),
            progress(job),
            rate,
            metric,
            job.device.clone().unwrap_or(UNKNOWN.to_owned()),
            duration(job.wall_seconds),
            job.attempt.to_string(),
            step,
        ];
        self.styled(texts, &job.state)
    }

    fn model_cells(&self, model: &ModelFigures) -> Vec<TableCell> {
        let number = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), short_number);
        let texts = [
            model.name.clone(),
            model.state.clone(),
            number(model.requests_per_second),
            milliseconds(model.p50_seconds),
            milliseconds(model.p99_seconds),
            number(model.queue_length),
            number(model.batch_items),
            number(model.errors_per_second),
            model.serving.map_or(UNKNOWN.to_owned(), |version| version.to_string()),
        ];
        self.styled(texts, &model.state)
    }

    /// Returns cells whose second one has the style of a state.
    fn styled<const N: usize>(&self, texts: [String; N], state: &str) -> Vec<TableCell> {
        let style = |at: usize| if at == 1 { self.palette.state(state) } else { Style::new() };
        texts.into_iter().enumerate().map(|(at, text)| (text, style(at))).collect()
    }
}

/// Returns the share of the steps that are done as a bar with its percentage, or the step.
fn progress(job: &JobFigures) -> String {
    if job.steps_target == 0 {
        return format!("step {}", job.step);
    }
    let share = job.step as f64 / job.steps_target as f64;
    format!("{} {:>3.0}%", bar(share, BAR_COLUMNS), (share * 100.0).floor())
}

fn device_cells(device: &DeviceFigures) -> Vec<TableCell> {
    let mut owners: Vec<(&String, &u64)> = device.memory_bytes.iter().collect();
    owners.sort_by_key(|(_, held)| std::cmp::Reverse(**held));
    let owners: Vec<String> =
        owners.into_iter().map(|(owner, held)| format!("{owner} {}", format_bytes(*held))).collect();
    let busy = device.busy_percent.map_or(UNKNOWN.to_owned(), |percent| format!("{percent:.0}%"));
    let texts = [
        device.name.clone(),
        busy,
        device.busy_percent.map_or(String::new(), |percent| bar(percent / 100.0, BAR_COLUMNS)),
        format_bytes(device.memory_total()),
        if owners.is_empty() { UNKNOWN.to_owned() } else { owners.join(", ") },
        device.adapter.clone(),
    ];
    texts.into_iter().map(|text| (text, Style::new())).collect()
}
