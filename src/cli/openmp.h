// Makes OpenMP's threads yield: ggml's CPU kernels wait for each other at an OpenMP barrier after
// every operation.
//
// By default libgomp spins there for about a millisecond. When any other program wants a processor,
// a spinning thread takes it from the thread that all wait for, and the whole computation becomes
// several times slower. A short spin keeps barriers cheap and gives the processor up when it is
// wanted.
#pragma once

namespace bevy {

// libgomp reads its settings when it is loaded, which is before main(): so this sets them and
// starts the same program again, once. Does nothing when the user has set OMP_WAIT_POLICY or
// GOMP_SPINCOUNT, or where the program can't be started again. Call first in main(), before any
// thread is started.
void settle_openmp_waiting(char** argv);

}  // namespace bevy
