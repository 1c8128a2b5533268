use saggar_compile::compile;
use saggar_tensor::{DType, GraphBuilder, Shape, verify};

use super::host::Look;
use super::*;

fn room(bytes: u64) -> Arc<Room> {
    Room::new("cpu", Memory::Bytes { bytes, of: "a test's limit" })
}

/// A host with 1 GiB of which nothing was touched; one for each test, for what is charged stays counted in it.
fn host() -> &'static Host {
    let look =
        || Some(Look { available: Available { bytes: 1 << 30, of: "a test".to_owned() }, touched_bytes: Some(0) });
    Box::leak(Box::new(Host::new(look)))
}

fn left(room: &Room) -> u64 {
    room.available().unwrap().bytes
}

#[test]
fn what_is_charged_is_taken_until_it_is_dropped() {
    let (room, meter) = (room(1000), Meter::unlimited());
    let kept = room.charge(&"x", 800, &meter).unwrap();
    let refused = room.charge(&"y", 300, &meter).unwrap_err();
    let DeviceError::NoRoom { asked_bytes: 300, available_bytes: 200, .. } = refused else { panic!("{refused}") };
    assert_eq!(
        refused.to_string(),
        "no room: y wants 300 bytes, and cpu has 200 available (a test's limit); smaller batches, a smaller model \
         or more memory would do"
    );
    assert_eq!((meter.bytes(), left(&room)), (800, 200), "what was refused is not charged");
    drop(kept);
    room.charge(&"y", 300, &meter).unwrap();
    assert_eq!((meter.bytes(), left(&room)), (0, 1000));
}

#[test]
fn a_limit_of_the_owner_comes_first() {
    let room = room(1000);
    let refused = room.charge(&"x", 200, &Meter::new(100)).unwrap_err();
    assert!(matches!(refused, DeviceError::OutOfMemory { asked_bytes: 200, .. }), "{refused}");
    assert_eq!(left(&room), 1000);
}

#[test]
fn many_that_ask_at_once_get_no_more_than_there_is() {
    let (room, meter) = (room(1000), Meter::unlimited());
    for _ in 0..100 {
        let charges: Vec<_> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| room.charge(&"x", 600, &meter).ok());
            let threads: Vec<_> = (0..4).map(|_| ask()).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(charges.len(), 1, "two of 600 bytes of 1000, or none");
    }
    assert_eq!(left(&room), 1000);
}

#[test]
fn what_no_host_has_is_refused_by_name() {
    if host::look().is_none() {
        println!("SKIP: this system does not say how much memory it has");
        return;
    }
    let refused = check_host(&"a tensor", 1 << 60).unwrap_err();
    assert!(matches!(refused, DeviceError::NoRoom { asked_bytes, .. } if asked_bytes == 1 << 60), "{refused}");
}

#[test]
fn memory_that_nobody_touched_counts_in_every_room_of_the_host() {
    let (host, meter) = (host(), Meter::unlimited());
    let [cpu, copies] = ["cpu", "the host"].map(|name| Room::on(name, Memory::Host, host));
    let kept = cpu.charge(&"x", 700 << 20, &meter).unwrap();
    let refused = cpu.charge(&"y", 700 << 20, &meter).unwrap_err();
    let is_said = matches!(refused, DeviceError::NoRoom { available_bytes, .. } if available_bytes == 324 << 20);
    assert!(is_said, "{refused}");
    assert!(copies.check(&"a copy of x", 700 << 20).is_err(), "x is there, though no page of it was touched");
    drop(kept);
    copies.check(&"a copy of x", 700 << 20).unwrap();
}

#[test]
fn memory_that_was_touched_is_counted_by_the_system() {
    let look =
        || Some(Look { available: Available { bytes: 1000, of: "a test".to_owned() }, touched_bytes: Some(300) });
    let host = Host::new(look);
    assert_eq!(host.left(200).unwrap().bytes, 1000);
    assert_eq!(host.left(400).unwrap().bytes, 900);
    let silent = || Some(Look { available: Available { bytes: 1000, of: "a test".to_owned() }, touched_bytes: None });
    assert_eq!(Host::new(silent).left(400).unwrap().bytes, 1000, "nobody knows what was touched");
    assert_eq!(Host::new(|| None).left(400), None);
}

#[test]
fn an_adapter_in_the_hosts_memory_has_no_more_than_its_host() {
    let (host, meter) = (host(), Meter::unlimited());
    let cpu = Room::on("cpu", Memory::Host, host);
    let adapter = |bytes| Room::on("vulkan:0", Memory::HostUpTo { bytes, of: "its heap" }, host);
    assert_eq!((left(&adapter(1 << 20)), left(&adapter(1 << 40))), (1 << 20, 1 << 30));
    let _kept = cpu.charge(&"x", 700 << 20, &meter).unwrap();
    assert!(adapter(1 << 40).charge(&"y", 700 << 20, &meter).is_err());
    let small = adapter(1 << 20);
    let _kept = small.charge(&"y", 1 << 19, &meter).unwrap();
    assert_eq!((left(&small), left(&cpu)), (1 << 19, 324 << 20));
}

#[test]
fn a_program_is_checked_with_all_that_it_takes_on_its_device() {
    let mut g = GraphBuilder::new();
    let halves = Descriptor::new(DType::F16, Shape::new([10]).unwrap());
    let x = g.input("x", halves).unwrap();
    let y = g.add(x, x).unwrap();
    g.output("y", y).unwrap();
    let graph = verify(g.finish()).unwrap();
    let words = Target { half_storage: false, ..Target::gpu() };
    for (target, output_bytes) in [(Target::cpu(), 20), (Target::gpu(), 20), (words, 40)] {
        let program = compile(&graph, &target).unwrap();
        let needs = Needs { scratch_bytes: 7, packed_bytes: 5 };
        let check = |bytes| room(bytes).check_program(&program, &target, needs, &Meter::new(7));
        check(output_bytes + 12).unwrap();
        let refused = check(output_bytes + 11).unwrap_err().to_string();
        assert!(refused.contains("packed weights 5") && refused.contains("scratch memory 7"), "{refused}");
    }
}
