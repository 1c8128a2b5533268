//! The job interface of a plugin: parameters, metrics, checkpoints and publication. It is implemented with
//! [`crate::JobContext`].

mod image_inputs;
mod logged_items;
pub(crate) mod train_role;

use saggar_store::checkpoint::{Checkpoint, VariableKind};
use saggar_store::{LoggedItem, is_output_path};
use saggar_tensor::limits::NAME_BYTES_MAX;
use wasmtime::component::Resource;

use crate::bindings::job::{Host, ImageLayout, ImagePreprocessing, OpenedModel as WitOpenedModel, TableColumn};
use crate::call_limits::CallInterrupted;
use crate::datasets::batch_iterator::BatchIterator;
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::job_context::{InitialState, LogLevel};
use crate::limits::{
    CONFIG_BYTES_MAX, METRIC_SERIES_MAX, OUTPUT_BYTES_MAX, OUTPUTS_MAX, PHASES_MAX, STATE_BYTES_MAX, STOP_GRACE,
};
use crate::loss_scale::loss_scale_state::is_host_variable;
use crate::tensors::device_tensor::DeviceTensor;
use crate::variables::namespace::VariableNamespace;
use train_role::TrainRole;

fn no_job_error() -> HostError {
    HostError::unsupported("only a training has a job, not a predictor or an importer")
}

impl InstanceState {
    fn train_role(&mut self) -> Result<&mut TrainRole, HostError> {
        match &mut self.role {
            InstanceRole::Train(train) => Ok(train),
            InstanceRole::Predict { .. } => Err(no_job_error()),
        }
    }

    /// Returns the training's state, or traps, for functions that cannot return an error.
    fn train_role_or_trap(&mut self) -> wasmtime::Result<&mut TrainRole> {
        self.train_role().map_err(|_| wasmtime::Error::msg("only a training has a job, not a predictor or an importer"))
    }

    fn build_checkpoint(
        &self,
        step: u64,
        namespace: &Resource<VariableNamespace>,
        batches: &[Resource<BatchIterator>],
        state: Vec<u8>,
        plugin_digest: String,
    ) -> Result<Checkpoint, HostError> {
        let mut variables = self.table.get(namespace)?.save(&*self.backend, self.cancel_token(), |_| true)?;
        variables.extend(self.save_loss_scale()?);
        let position = |batches: &Resource<BatchIterator>| Ok(self.table.get(batches)?.position());
        let info = self.backend.info();
        Ok(Checkpoint {
            step,
            metrics: Default::default(),
            variables,
            positions: batches.iter().map(position).collect::<Result<_, HostError>>()?,
            state,
            plugin_digest,
            device: format!("{}: {} ({})", info.name, info.adapter, info.driver),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            kernel_tuning: self.backend.tuning_records(),
        })
    }
}

impl Host for InstanceState {
    fn parameters(&mut self) -> wasmtime::Result<String> {
        Ok(self.train_role_or_trap()?.context.parameters())
    }

    fn seed(&mut self) -> wasmtime::Result<u64> {
        Ok(self.train_role_or_trap()?.context.seed())
    }

    fn attempt(&mut self) -> wasmtime::Result<u32> {
        Ok(self.train_role_or_trap()?.context.attempt())
    }

    fn shards(&mut self) -> wasmtime::Result<u32> {
        Ok(self.train_role_or_trap()?.context.shards().count)
    }

    fn secret(&mut self, name: String) -> Result<String, HostError> {
        self.train_role()?.context.secret(&name).map_err(HostError::Job)
    }

    fn metric(&mut self, step: u64, name: String, value: f64) -> wasmtime::Result<()> {
        let train = self.train_role_or_trap()?;
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        if name.is_empty() {
            return Ok(());
        }
        if !train.series.contains(name) {
            if train.series.len() >= METRIC_SERIES_MAX {
                // Log this once: the empty name, which no series has, marks that it was logged.
                if train.series.insert(String::new()) {
                    let line =
                        format!("more than {METRIC_SERIES_MAX} series of metrics: `{name}` and later ones are dropped");
                    train.context.log(LogLevel::Warn, &line);
                }
                return Ok(());
            }
            train.series.insert(name.to_owned());
        }
        train.context.metric(step, name, value);
        Ok(())
    }

    fn log_image(
        &mut self,
        step: u64,
        name: String,
        image: Resource<DeviceTensor>,
        layout: ImageLayout,
    ) -> Result<(), HostError> {
        let key = logged_items::image_key(step, name)?;
        let image = self.read_image(&key.name, &image, layout)?;
        self.train_role()?.context.log_item(key, LoggedItem::Image(image));
        Ok(())
    }

    fn log_table(&mut self, step: u64, name: String, columns: Vec<TableColumn>) -> Result<(), HostError> {
        let (key, table) = logged_items::check_table(step, name, columns)?;
        self.train_role()?.context.log_item(key, table);
        Ok(())
    }

    fn log_histogram(&mut self, step: u64, name: String, edges: Vec<f64>, counts: Vec<u64>) -> Result<(), HostError> {
        let (key, histogram) = logged_items::check_histogram(step, name, edges, counts)?;
        self.train_role()?.context.log_item(key, histogram);
        Ok(())
    }

    fn progress(&mut self, step: u64, of: u64) -> wasmtime::Result<()> {
        self.train_role_or_trap()?.context.progress(step, of);
        Ok(())
    }

    fn resume(
        &mut self,
        namespace: Resource<VariableNamespace>,
        batches: Vec<Resource<BatchIterator>>,
    ) -> Result<Option<(u64, Vec<u8>)>, HostError> {
        let checkpoint = match self.train_role()?.context.initial_state().map_err(HostError::Job)? {
            InitialState::Nothing => return Ok(None),
            InitialState::Checkpoint(checkpoint) => checkpoint,
            InitialState::Weights(weights) => {
                let namespace = self.table.get(&namespace)?;
                let (matching, all) = (namespace.load_matching(&weights, &*self.backend)?, namespace.len());
                let line = format!("took {matching} of {all} variables from a model's {} weights", weights.len());
                self.train_role()?.context.log(LogLevel::Info, &line);
                return Ok(None);
            }
        };
        if checkpoint.positions.len() != batches.len() {
            let (saved, here) = (checkpoint.positions.len(), batches.len());
            return Err(HostError::invalid(format!("the checkpoint has {saved} streams of batches, not {here}")));
        }
        let (own, variables): (Vec<_>, Vec<_>) = checkpoint.variables.into_iter().partition(is_host_variable);
        self.table.get(&namespace)?.restore(&variables, &*self.backend)?;
        self.restore_loss_scale(&own)?;
        for (batches, position) in batches.iter().zip(&checkpoint.positions) {
            self.table.get_mut(batches)?.restore(position)?;
        }
        Ok(Some((checkpoint.step, checkpoint.state)))
    }

    fn boundary(
        &mut self,
        step: u64,
        namespace: Resource<VariableNamespace>,
        batches: Vec<Resource<BatchIterator>>,
        state: Vec<u8>,
    ) -> Result<bool, HostError> {
        if state.len() > STATE_BYTES_MAX {
            let message = format!("a checkpoint's state has at most {STATE_BYTES_MAX} bytes, not {}", state.len());
            return Err(HostError::out_of_memory(message));
        }
        self.record_host_call();
        let train = self.train_role()?;
        if train.stopped {
            // The plugin ignored the request to stop. Its state is saved, and anything it does from now on would be
            // discarded.
            return Err(HostError::Trap(CallInterrupted::Stopped.into()));
        }
        // Ask once: a stop that is requested between saving and answering must wait for the next boundary.
        let stop = train.context.stop_requested(step);
        if stop || train.context.checkpoint_due(step) {
            let digest = train.plugin_digest.clone();
            self.log_skipped_steps()?;
            let checkpoint = self.build_checkpoint(step, &namespace, &batches, state, digest)?;
            let train = self.train_role()?;
            train.context.save(checkpoint).map_err(HostError::Job)?;
            train.stopped = stop;
        }
        if stop {
            self.set_stop_grace(STOP_GRACE);
        }
        self.record_host_call();
        Ok(!stop)
    }

    fn publish(
        &mut self,
        model: String,
        namespace: Resource<VariableNamespace>,
        config: String,
    ) -> Result<u64, HostError> {
        self.train_role()?;
        if config.len() > CONFIG_BYTES_MAX {
            let message = format!("a model's configuration has at most {CONFIG_BYTES_MAX} bytes, not {}", config.len());
            return Err(HostError::out_of_memory(message));
        }
        let shipped = |kind| match kind {
            VariableKind::Parameter | VariableKind::Statistic => true,
            VariableKind::Training => false,
        };
        let variables = self.table.get(&namespace)?.save(&*self.backend, self.cancel_token(), shipped)?;
        let train = self.train_role()?;
        train.context.publish(&model, variables, &config, &train.image_inputs).map_err(HostError::Job)
    }

    fn open_model(&mut self, model: String, version: Option<u64>) -> Result<WitOpenedModel, HostError> {
        let opened = self.train_role()?.context.open_model(&model, version).map_err(HostError::Job)?;
        let variables = VariableNamespace::upload_sealed(&opened.variables, &*self.backend, &self.meter)?;
        let variables = self.push(variables)?;
        self.record_host_call();
        Ok(WitOpenedModel { version: opened.version, variables, config: opened.config })
    }

    fn declare_image_input(&mut self, name: String, preprocessing: ImagePreprocessing) -> Result<(), HostError> {
        image_inputs::declare(self.train_role()?, name, preprocessing)
    }

    fn phase(&mut self, name: String) -> Result<(), HostError> {
        let train = self.train_role()?;
        // A phase's name is an output path without directories.
        if !is_output_path(&name) || name.contains('/') {
            let expected = "letters, digits, `.`, `_` and `-`, not beginning with `.`";
            return Err(HostError::invalid_at(name, format!("a phase's name is {expected}")));
        }
        if train.phases >= PHASES_MAX {
            return Err(HostError::out_of_memory(format!("a training begins at most {PHASES_MAX} phases")));
        }
        train.phases += 1;
        train.context.phase(&name);
        self.record_host_call();
        Ok(())
    }

    fn write_output(&mut self, path: String, data: Vec<u8>) -> Result<(), HostError> {
        let train = self.train_role()?;
        check_output_file(&path, data.len())?;
        let new = if train.outputs.contains_key(&path) { 0 } else { 1 };
        let others: usize = train.outputs.iter().filter(|(other, _)| **other != path).map(|(_, bytes)| bytes).sum();
        if train.outputs.len() + new > OUTPUTS_MAX || others + data.len() > OUTPUT_BYTES_MAX {
            let message = format!(
                "a training writes at most {OUTPUTS_MAX} files of {OUTPUT_BYTES_MAX} bytes together; with `{path}` it \
                 would be {} of {}",
                train.outputs.len() + new,
                others + data.len()
            );
            return Err(HostError::out_of_memory(message));
        }
        train.context.write_output(&path, &data).map_err(HostError::Job)?;
        train.outputs.insert(path, data.len());
        self.record_host_call();
        Ok(())
    }
}

/// Refuses paths that could leave the job's directory, and files that are too large.
fn check_output_file(path: &str, bytes: usize) -> Result<(), HostError> {
    if !is_output_path(path) {
        let expected = "names of letters, digits, `.`, `_` and `-`, none beginning with `.`, joined by `/`";
        return Err(HostError::invalid_at(path, format!("an output's path is {expected}")));
    }
    if bytes > OUTPUT_BYTES_MAX {
        let message = format!("`{path}` has {bytes} bytes, and at most {OUTPUT_BYTES_MAX} are accepted");
        return Err(HostError::out_of_memory(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_paths_cannot_leave_the_job_directory() {
        assert!(check_output_file("a/b_c/target-010.png", 1).is_ok());
        for path in ["", "/a", "a/", "../a", "a/../b", ".hidden", "a b"] {
            assert!(check_output_file(path, 1).is_err(), "{path}");
        }
        assert!(check_output_file("large", OUTPUT_BYTES_MAX + 1).is_err());
    }
}
