use std::fs;

use saggar_device::{Backend, CancelToken, Meter};
use saggar_store::checkpoint::DatasetPosition;
use saggar_store::image_decoder::DecodedImage;
use saggar_store::{
    DatasetStore, ImageColors, ImageFit, ImageLayout, ImageNormalization, ImagePreprocessing, ImageResize,
};
use saggar_tensor::{DType, Descriptor, Shape};

use super::batch_iterator::BatchIterator;
use super::device_dataset::DeviceDataset;
use super::*;
use crate::limits::BATCH_ITEMS_MAX;

/// Returns a dataset of ten items, whose only field is the item's index.
fn dataset() -> (tempfile::TempDir, Arc<ColumnarDataset>) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let text = r#"{
        "format": "csv", "file": "numbers.csv",
        "fields": [{ "name": "number", "columns": [0, 1], "dtype": "uint8" }]
    }"#;
    fs::write(folder.join("dataset.json"), text).unwrap();
    fs::write(folder.join("numbers.csv"), (0..10).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
    let datasets = DatasetStore::new(home.path().join("datasets"));
    let info = datasets.ingest("numbers", &folder, 0).unwrap();
    (home, Arc::new(datasets.open(&info).unwrap()))
}

fn options(size: u32, shuffle_seed: Option<u64>, drop_last: bool) -> BatchOptions {
    BatchOptions { size, shuffle_seed, drop_last, split: None }
}

fn batches(dataset: &Arc<ColumnarDataset>, options: &BatchOptions) -> BatchIterator {
    let fields = dataset.fields().to_vec();
    let shape = (options.size, options.drop_last);
    BatchIterator::new(Arc::clone(dataset), fields, 0..10, shape, options.shuffle_seed).unwrap()
}

/// Returns the sizes of the batches up to the end of the epoch.
fn epoch_batch_sizes(batches: &mut BatchIterator) -> Vec<usize> {
    std::iter::from_fn(|| batches.next_items()).map(|items| items.len()).collect()
}

/// Uploads the items of batches, for batches of `size` items.
fn resident_dataset(backend: &dyn Backend, meter: &Meter, batches: &BatchIterator, size: u32) -> DeviceDataset {
    let what = (&*batches.fields, batches.first..batches.first + u64::from(batches.items));
    DeviceDataset::new(backend, meter, what, &|place| batches.read_column(place), size, &CancelToken::never()).unwrap()
}

#[test]
fn drop_last_decides_whether_an_epoch_has_a_partial_batch() {
    let (_home, dataset) = dataset();
    let check = |size, drop_last, expected: &[usize]| {
        let mut batches = batches(&dataset, &options(size, Some(1), drop_last));
        assert_eq!(epoch_batch_sizes(&mut batches), expected);
        assert_eq!((batches.epoch, batches.item), (1, 0), "the next epoch starts");
        assert_eq!(epoch_batch_sizes(&mut batches), expected);
    };
    check(3, false, &[3, 3, 3, 1]);
    check(3, true, &[3, 3, 3]);
    check(5, false, &[5, 5]);
    check(5, true, &[5, 5]);
    check(20, false, &[10]);
    check(20, true, &[]);
}

#[test]
fn batches_follow_the_stored_order_without_a_shuffle_seed() {
    let (_home, dataset) = dataset();
    let mut batches = batches(&dataset, &options(4, None, false));
    assert_eq!(batches.next_items(), Some(vec![0, 1, 2, 3]));
    batches.first = 100;
    assert_eq!(batches.next_items(), Some(vec![104, 105, 106, 107]), "a split starts at its first item");
}

#[test]
fn a_restored_position_yields_the_same_batches() {
    let (_home, dataset) = dataset();
    let mut one = batches(&dataset, &options(3, Some(9), false));
    let mut all = Vec::new();
    for _ in 0..20 {
        let position = one.position();
        let mut other = batches(&dataset, &options(3, Some(9), false));
        other.restore(&position).unwrap();
        let items = one.next_items();
        assert_eq!(other.next_items(), items, "at {position:?}");
        assert_eq!(other.position(), one.position());
        all.extend(items.into_iter().flatten().take(10));
    }
    assert!((0..10).all(|item| all.contains(&item)));
}

/// Also on the CPU, which normally copies batches: the drawn items do not depend on the device.
#[test]
fn batches_gathered_on_the_device_equal_copied_batches() {
    let (_home, dataset) = dataset();
    let adapters = saggar_gpu::adapters();
    if adapters.is_empty() {
        assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "no adapter");
        println!("SKIP: no adapter; only the CPU is tested");
    }
    let names = ["cpu".to_owned()].into_iter().chain(adapters.into_iter().map(|adapter| adapter.name));
    for backend in names.map(|name| saggar_devices::open(&name).unwrap().backend) {
        let (meter, never) = (Meter::unlimited(), CancelToken::never());
        let fields = dataset.fields().to_vec();
        let batches = BatchIterator::new(Arc::clone(&dataset), fields, 2..9, (3, true), None).unwrap();
        let resident = resident_dataset(&*backend, &meter, &batches, 3);
        for items in [[2, 3, 4], [8, 2, 8], [5, 7, 6]] {
            let drawn = resident.gather_batch(&*backend, &items, &never).unwrap();
            for (field, batch) in dataset.fields().iter().zip(&drawn) {
                assert_eq!(backend.read(batch).unwrap(), dataset.read(&field.name, &items).unwrap(), "{items:?}");
            }
        }
        drop(resident);
        assert_eq!(meter.bytes(), 0);
    }
}

/// Returns a dataset of five RGB images of 3 x 4 pixels, and their preprocessing to 2 x 2 grey pixels.
fn image_dataset() -> (ColumnarDataset, ImageInputs) {
    let item = Descriptor::new(DType::U8, Shape::new([3, 4, 3]).unwrap());
    let field = DatasetField { name: "image".to_owned(), item, classes: Vec::new() };
    let pixels = (0..5 * 36u32).map(|at| (at * 37 % 251) as u8).collect();
    let dataset = ColumnarDataset::from_columns(vec![(field, pixels)], &[("train".to_owned(), 5)]).unwrap();
    let preprocessing = ImagePreprocessing {
        resize: ImageResize { height: 2, width: 2, fit: ImageFit::Crop },
        colors: ImageColors::Grey,
        normalization: ImageNormalization::PerImageStandardization,
        layout: ImageLayout::Nchw,
    };
    (dataset, [("image".to_owned(), preprocessing)].into())
}

/// On every device, gathered batches have the bits that the processor computed.
#[test]
fn preprocessed_images_are_gathered_on_the_device_with_the_same_bits() {
    let (dataset, inputs) = image_dataset();
    let (dataset, preprocessing) = (Arc::new(dataset), &inputs["image"]);
    let batches = BatchIterator::new(Arc::clone(&dataset), dataset.fields().to_vec(), 1..5, (2, true), None).unwrap();
    let batches = batches.with_image_inputs(&inputs).unwrap();
    assert_eq!(batches.fields[0].item, preprocessing.input_item());
    let image = |item: u64| {
        let pixels = dataset.read("image", &[item]).unwrap();
        let picture = DecodedImage { height: 3, width: 4, channels: 3, pixels };
        preprocessing.normalize(&preprocessing.pixels(&picture))
    };
    let expected = [image(4), image(1)].concat();
    assert_eq!(*batches.read_field(0, &[4, 1]).unwrap(), expected);
    let names = ["cpu".to_owned()].into_iter().chain(saggar_gpu::adapters().into_iter().map(|adapter| adapter.name));
    for backend in names.map(|name| saggar_devices::open(&name).unwrap().backend) {
        let (meter, never) = (Meter::unlimited(), CancelToken::never());
        let resident = resident_dataset(&*backend, &meter, &batches, 2);
        let drawn = resident.gather_batch(&*backend, &[4, 1], &never).unwrap();
        assert_eq!(backend.read(&drawn[0]).unwrap(), expected, "{}", backend.info().name);
    }
}

#[test]
fn a_field_without_images_has_no_preprocessing() {
    let (_home, dataset) = dataset();
    let (_, images) = image_dataset();
    let inputs = [("number".to_owned(), images["image"].clone())].into();
    let batches = BatchIterator::new(Arc::clone(&dataset), dataset.fields().to_vec(), 0..10, (2, true), None).unwrap();
    let Err(HostError::Answer(error)) = batches.with_image_inputs(&inputs) else { panic!("it is refused") };
    assert_eq!(error.place.as_deref(), Some("number"));
    assert!(error.message.contains("stores uint8[]: only images have one"), "{}", error.message);
}

#[test]
fn a_position_of_another_batch_iterator_is_refused() {
    let (_home, dataset) = dataset();
    let mut batches = batches(&dataset, &options(3, Some(9), false));
    let position = batches.position();
    for wrong in [
        DatasetPosition { seed: None, ..position.clone() },
        DatasetPosition { batch: 4, ..position.clone() },
        DatasetPosition { dataset: "0".to_owned(), ..position.clone() },
        DatasetPosition { item: 11, ..position.clone() },
        DatasetPosition { item: u64::MAX, ..position.clone() },
    ] {
        assert!(batches.restore(&wrong).is_err(), "{wrong:?}");
        assert_eq!(batches.position(), position, "nothing changed");
    }
}

#[test]
fn batch_sizes_have_limits() {
    let (_home, dataset) = dataset();
    let refused = |size| BatchIterator::new(Arc::clone(&dataset), Vec::new(), 0..10, (size, false), None).is_err();
    assert!(refused(0));
    assert!(refused(BATCH_ITEMS_MAX + 1));
    assert!(!refused(BATCH_ITEMS_MAX));
}
