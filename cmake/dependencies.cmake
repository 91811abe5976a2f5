# The language, and every third-party library, found once, here.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# What users run: optimised, our assertions and the standard library's cheap ones on, and backtraces
# with line numbers. Variables in a debugger, which cost a third of the compile time, are for the
# debug build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
add_compile_definitions(_GLIBCXX_ASSERTIONS)
# Messages and debug information name files as the repository does, whatever folder it lies in.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

find_package(Threads REQUIRED)
if(BEVY_TESTS)
    find_package(GTest REQUIRED)
    include(GoogleTest)
endif()
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_library(GGML_LIBRARY ggml REQUIRED)
find_library(GGML_BASE_LIBRARY ggml-base REQUIRED)
find_library(LLAMA_LIBRARY llama REQUIRED)
find_library(URING_LIBRARY uring REQUIRED)
find_library(HTTPLIB_LIBRARY cpp-httplib REQUIRED)
find_library(PROMETHEUS_LIBRARY prometheus-cpp-core REQUIRED)
find_package(OpenSSL REQUIRED)

add_library(bevy_ggml INTERFACE)
target_link_libraries(bevy_ggml INTERFACE ${GGML_LIBRARY} ${GGML_BASE_LIBRARY})
add_library(bevy_llama INTERFACE)
target_link_libraries(bevy_llama INTERFACE ${LLAMA_LIBRARY} bevy_ggml)

# The header must see the features that the library was built with: its classes differ by them.
add_library(bevy_http INTERFACE)
target_compile_definitions(bevy_http INTERFACE
    CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT CPPHTTPLIB_BROTLI_SUPPORT
    CPPHTTPLIB_ZSTD_SUPPORT CPPHTTPLIB_USE_NON_BLOCKING_GETADDRINFO)
target_link_libraries(bevy_http INTERFACE ${HTTPLIB_LIBRARY} OpenSSL::SSL OpenSSL::Crypto)
