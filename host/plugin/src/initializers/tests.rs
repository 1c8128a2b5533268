use saggar_tensor::Shape;

use super::*;

fn floats(seed: u64, name: &str, elements: usize, initializer: VariableInitializer) -> Vec<f32> {
    let descriptor = Descriptor::new(DType::F32, Shape::new(vec![elements]).unwrap());
    let bytes = initial_elements(seed, name, &descriptor, initializer, &CancelToken::never()).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn random_values_depend_only_on_seed_and_name() {
    let normal = || VariableInitializer::Normal { mean: 0.0, deviation: 1.0 };
    assert_eq!(floats(1, "w", 101, normal()), floats(1, "w", 101, normal()));
    assert_ne!(floats(1, "w", 101, normal()), floats(2, "w", 101, normal()));
    assert_ne!(floats(1, "w", 101, normal()), floats(1, "v", 101, normal()));
    let long = floats(1, "w", 1000, normal());
    assert_eq!(floats(1, "w", 101, normal()), long[..101], "a longer variable has the same prefix");
}

#[test]
fn uniform_values_fill_their_range() {
    let values = floats(7, "w", 100_000, VariableInitializer::Uniform { low: -0.5, high: 1.5 });
    assert!(values.iter().all(|&v| (-0.5..1.5).contains(&v)));
    let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
    let square = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / values.len() as f64;
    // Four standard errors of the mean: 2/sqrt(12)/sqrt(1e5) = 0.0018.
    assert!((mean - 0.5).abs() < 0.0073, "mean {mean}");
    assert!((square - 1.0 / 3.0).abs() < 0.005, "variance {square}");
    let narrow = floats(7, "w", 1000, VariableInitializer::Uniform { low: 1.0, high: 1.0f32.next_up() });
    assert!(narrow.iter().all(|&v| v == 1.0), "the end of the range is not part of it");
}

#[test]
fn normal_values_have_the_requested_mean_and_deviation() {
    let values = floats(9, "w", 100_000, VariableInitializer::Normal { mean: 3.0, deviation: 2.0 });
    let count = values.len() as f64;
    let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
    let moment = |n| values.iter().map(|&v| ((f64::from(v) - mean) / 2.0).powi(n)).sum::<f64>() / count;
    assert!((mean - 3.0).abs() < 0.026, "mean {mean}");
    assert!((moment(2) - 1.0).abs() < 0.02, "variance {}", moment(2));
    assert!(moment(3).abs() < 0.04, "skewness {}", moment(3));
    assert!((moment(4) - 3.0).abs() < 0.15, "kurtosis {}", moment(4));
}

#[test]
fn constants_outside_their_dtype_are_refused() {
    let bytes = |dtype, value| {
        let descriptor = Descriptor::new(dtype, Shape::new(vec![2]).unwrap());
        initial_elements(0, "c", &descriptor, VariableInitializer::Constant(value), &CancelToken::never()).ok()
    };
    assert_eq!(bytes(DType::F32, 1.5), Some([1.5f32.to_le_bytes(); 2].concat()));
    assert_eq!(bytes(DType::F16, 1.0), Some(vec![0, 0x3c, 0, 0x3c]));
    assert_eq!(bytes(DType::I8, -3.0), Some(vec![0xfd, 0xfd]));
    assert_eq!(bytes(DType::U8, 256.0), None);
    assert_eq!(bytes(DType::U8, 1.5), None);
    assert_eq!(bytes(DType::I64, f32::NAN), None);
    assert_eq!(bytes(DType::I64, f32::INFINITY), None);
}

#[test]
fn invalid_initializers_are_refused() {
    let descriptor = Descriptor::new(DType::F32, Shape::new(vec![3]).unwrap());
    let refused = |initializer| initial_elements(0, "w", &descriptor, initializer, &CancelToken::never()).is_err();
    assert!(refused(VariableInitializer::Bytes(vec![0; 11])));
    assert!(refused(VariableInitializer::Uniform { low: 1.0, high: 1.0 }));
    assert!(refused(VariableInitializer::Uniform { low: f32::NEG_INFINITY, high: 1.0 }));
    assert!(refused(VariableInitializer::Normal { mean: 0.0, deviation: -1.0 }));
    let integers = Descriptor::new(DType::I32, Shape::new(vec![3]).unwrap());
    assert!(
        initial_elements(
            0,
            "w",
            &integers,
            VariableInitializer::Normal { mean: 0.0, deviation: 1.0 },
            &CancelToken::never()
        )
        .is_err()
    );
}

#[test]
fn cancelled_initialization_stops_early() {
    let descriptor = Descriptor::new(DType::F32, Shape::new(vec![1 << 24]).unwrap());
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let cancel = CancelToken::new(move || looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 2);
    for initializer in [
        VariableInitializer::Uniform { low: 0.0, high: 1.0 },
        VariableInitializer::Normal { mean: 0.0, deviation: 1.0 },
    ] {
        let elements = generate_elements(0, "w", &descriptor, initializer.clone(), &cancel).unwrap();
        assert!(elements.len() < descriptor.bytes(), "{} bytes", elements.len());
        assert!(matches!(
            initial_elements(0, "w", &descriptor, initializer, &cancel),
            Err(HostError::Device(DeviceError::Cancelled))
        ));
    }
}
