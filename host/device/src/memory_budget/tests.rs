use saggar_compile::compile;
use saggar_tensor::{DType, GraphBuilder, Shape, verify};

use super::host_budget::HostMemorySnapshot;
use super::*;

fn fixed_budget(bytes: u64) -> Arc<DeviceMemoryBudget> {
    DeviceMemoryBudget::new("cpu", MemorySource::Fixed { bytes, source: "a test's limit" })
}

/// Returns a host with 1 GiB, untouched. Each test makes one, because charges stay counted in it.
fn gibibyte_host() -> &'static HostMemoryBudget {
    let look = || {
        Some(HostMemorySnapshot {
            available: AvailableMemory { bytes: 1 << 30, source: "a test".to_owned() },
            resident_bytes: Some(0),
        })
    };
    Box::leak(Box::new(HostMemoryBudget::new(look)))
}

fn remaining_bytes(room: &DeviceMemoryBudget) -> u64 {
    room.available().unwrap().bytes
}

#[test]
fn a_charge_holds_memory_until_it_is_dropped() {
    let (room, meter) = (fixed_budget(1000), Meter::unlimited());
    let charge = room.charge(&"x", 800, &meter).unwrap();
    let refused = room.charge(&"y", 300, &meter).unwrap_err();
    let DeviceError::InsufficientMemory { asked_bytes: 300, available_bytes: 200, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        refused.to_string(),
        "insufficient memory: y needs 300 bytes, and cpu has 200 available (a test's limit); use smaller batches, a \
         smaller model or more memory"
    );
    assert_eq!((meter.bytes(), remaining_bytes(&room)), (800, 200), "a refused charge must not count");
    drop(charge);
    room.charge(&"y", 300, &meter).unwrap();
    assert_eq!((meter.bytes(), remaining_bytes(&room)), (0, 1000));
}

#[test]
fn the_meter_limit_is_checked_before_the_budget() {
    let room = fixed_budget(1000);
    let refused = room.charge(&"x", 200, &Meter::new(100)).unwrap_err();
    assert!(matches!(refused, DeviceError::OutOfMemory { asked_bytes: 200, .. }), "{refused}");
    assert_eq!(remaining_bytes(&room), 1000);
}

#[test]
fn concurrent_charges_never_exceed_the_budget() {
    let (room, meter) = (fixed_budget(1000), Meter::unlimited());
    for _ in 0..100 {
        let charges: Vec<_> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| room.charge(&"x", 600, &meter).ok());
            let threads: Vec<_> = (0..4).map(|_| ask()).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(charges.len(), 1, "exactly one charge of 600 bytes fits into 1000");
    }
    assert_eq!(remaining_bytes(&room), 1000);
}

#[test]
fn a_copy_larger_than_host_memory_is_refused() {
    if host_budget::read_snapshot().is_none() {
        println!("SKIP: this system does not say how much memory it has");
        return;
    }
    let refused = check_host_memory(&"a tensor", 1 << 60).unwrap_err();
    assert!(
        matches!(refused, DeviceError::InsufficientMemory { asked_bytes, .. } if asked_bytes == 1 << 60),
        "{refused}"
    );
}

#[test]
fn untouched_charges_count_in_every_budget_of_the_host() {
    let (host, meter) = (gibibyte_host(), Meter::unlimited());
    let [cpu, copies] = ["cpu", "the host"].map(|name| DeviceMemoryBudget::on_host(name, MemorySource::Host, host));
    let charge = cpu.charge(&"x", 700 << 20, &meter).unwrap();
    let refused = cpu.charge(&"y", 700 << 20, &meter).unwrap_err();
    let is_said =
        matches!(refused, DeviceError::InsufficientMemory { available_bytes, .. } if available_bytes == 324 << 20);
    assert!(is_said, "{refused}");
    assert!(copies.check(&"a copy of x", 700 << 20).is_err(), "x is charged, though its pages are untouched");
    drop(charge);
    copies.check(&"a copy of x", 700 << 20).unwrap();
}

#[test]
fn resident_memory_is_not_counted_twice() {
    let look = || {
        Some(HostMemorySnapshot {
            available: AvailableMemory { bytes: 1000, source: "a test".to_owned() },
            resident_bytes: Some(300),
        })
    };
    let host = HostMemoryBudget::new(look);
    assert_eq!(host.remaining(200).unwrap().bytes, 1000);
    assert_eq!(host.remaining(400).unwrap().bytes, 900);
    let silent = || {
        Some(HostMemorySnapshot {
            available: AvailableMemory { bytes: 1000, source: "a test".to_owned() },
            resident_bytes: None,
        })
    };
    assert_eq!(HostMemoryBudget::new(silent).remaining(400).unwrap().bytes, 1000, "the resident bytes are unknown");
    assert_eq!(HostMemoryBudget::new(|| None).remaining(400), None);
}

#[test]
fn an_integrated_adapter_has_no_more_memory_than_its_host() {
    let (host, meter) = (gibibyte_host(), Meter::unlimited());
    let cpu = DeviceMemoryBudget::on_host("cpu", MemorySource::Host, host);
    let adapter =
        |bytes| DeviceMemoryBudget::on_host("vulkan:0", MemorySource::HostUpTo { bytes, source: "its heap" }, host);
    assert_eq!((remaining_bytes(&adapter(1 << 20)), remaining_bytes(&adapter(1 << 40))), (1 << 20, 1 << 30));
    let _kept = cpu.charge(&"x", 700 << 20, &meter).unwrap();
    assert!(adapter(1 << 40).charge(&"y", 700 << 20, &meter).is_err());
    let small = adapter(1 << 20);
    let _kept = small.charge(&"y", 1 << 19, &meter).unwrap();
    assert_eq!((remaining_bytes(&small), remaining_bytes(&cpu)), (1 << 19, 324 << 20));
}

#[test]
fn check_program_counts_scratch_constants_outputs_and_packed_weights() {
    let mut g = GraphBuilder::new();
    let halves = Descriptor::new(DType::F16, Shape::new([10]).unwrap());
    let x = g.input("x", halves).unwrap();
    let y = g.add(x, x).unwrap();
    g.output("y", y).unwrap();
    let graph = verify(g.finish()).unwrap();
    let words = CompileTarget { half_storage: false, ..CompileTarget::gpu() };
    for (target, output_bytes) in [(CompileTarget::cpu(), 20), (CompileTarget::gpu(), 20), (words, 40)] {
        let program = compile(&graph, &target).unwrap();
        let needs = MemoryRequirements { scratch_bytes: 7, packed_bytes: 5 };
        let check = |bytes| fixed_budget(bytes).check_program(&program, &target, needs, &Meter::new(7));
        check(output_bytes + 12).unwrap();
        let refused = check(output_bytes + 11).unwrap_err().to_string();
        assert!(refused.contains("packed weights 5") && refused.contains("scratch memory 7"), "{refused}");
    }
}
