//! Arguments of the commands that draw charts.

use std::path::PathBuf;

use clap::Args;

/// The files that a chart is written to.
#[derive(Debug, Args)]
#[group(id = "chart_files", multiple = true)]
pub(crate) struct ChartFileArgs {
    /// Draw a chart into this PNG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) png: Option<PathBuf>,
    /// Draw a chart into this SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// How the chart in a file looks.
#[derive(Debug, Args)]
pub(crate) struct ChartLookArgs {
    /// The width of the picture, in pixels [default: 800].
    #[arg(long, requires = "chart_files", value_name = "PIXELS")]
    pub(crate) width: Option<u32>,
    /// The height of the picture, in pixels [default: by the number of charts].
    #[arg(long, requires = "chart_files", value_name = "PIXELS")]
    pub(crate) height: Option<u32>,
    /// Replace files that exist.
    #[arg(long, requires = "chart_files")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) curves: CurveArgs,
}

/// How curves are drawn.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CurveArgs {
    /// Draw charts with a logarithmic vertical axis. Values that are not above 0 are left out and counted.
    #[arg(long)]
    pub(crate) log: bool,
    /// Smooth the lines of charts: the weight of the exponential moving average, from 0 to below 1.
    #[arg(long, value_parser = parse_weight, default_value_t = 0.0, hide_default_value = true, value_name = "WEIGHT")]
    pub(crate) smooth: f64,
}

/// Parses a weight, from 0 to below 1.
fn parse_weight(text: &str) -> Result<f64, String> {
    let weight = text.parse::<f64>().ok().filter(|weight| (0.0..1.0).contains(weight));
    weight.ok_or_else(|| format!("invalid weight `{text}`: expected a number from 0 to below 1, such as 0.6"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_from_0_to_below_1() {
        assert_eq!((parse_weight("0"), parse_weight("0.95")), (Ok(0.0), Ok(0.95)));
        for wrong in ["1", "-0.1", "nan", "inf", "much", ""] {
            assert!(parse_weight(wrong).unwrap_err().contains("such as 0.6"), "{wrong}");
        }
    }
}
