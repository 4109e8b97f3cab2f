#![no_main]
#![doc = "The fuzz target `reply`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::reply::check(data));
