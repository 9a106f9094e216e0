# The thunks of import hooks: kThunkCount entries of 16 bytes each, and their common body.
#
#   entry:  push index; jmp common
#   common: build a HookCall (import_hooks.h) on the stack, call TidemarkHookDispatch, take the
#           registers back and jump to HookCall::target with the stack as it was on entry.
#
# Callee-saved registers are untouched, so the call frame information only has to follow the stack
# pointer. %r11 is the one register that is not kept: the ABI gives it to PLT stubs.

  .set kThunkCount, 96
  .set kFrame, 208  # bytes of HookCall below the pushed index; a multiple of 16

  .text
  .p2align 4
  .type TidemarkHookCommon, @function
TidemarkHookCommon:
  .cfi_startproc
  .cfi_def_cfa_offset 16
  sub $kFrame, %rsp
  .cfi_adjust_cfa_offset kFrame
  mov %rdi, 0(%rsp)
  mov %rsi, 8(%rsp)
  mov %rdx, 16(%rsp)
  mov %rcx, 24(%rsp)
  mov %r8, 32(%rsp)
  mov %r9, 40(%rsp)
  mov %rax, 48(%rsp)
  mov %r10, 56(%rsp)
  movaps %xmm0, 64(%rsp)
  movaps %xmm1, 80(%rsp)
  movaps %xmm2, 96(%rsp)
  movaps %xmm3, 112(%rsp)
  movaps %xmm4, 128(%rsp)
  movaps %xmm5, 144(%rsp)
  movaps %xmm6, 160(%rsp)
  movaps %xmm7, 176(%rsp)
  mov %rsp, %rdi
  call TidemarkHookDispatch
  mov 0(%rsp), %rdi
  mov 8(%rsp), %rsi
  mov 16(%rsp), %rdx
  mov 24(%rsp), %rcx
  mov 32(%rsp), %r8
  mov 40(%rsp), %r9
  mov 48(%rsp), %rax
  mov 56(%rsp), %r10
  movaps 64(%rsp), %xmm0
  movaps 80(%rsp), %xmm1
  movaps 96(%rsp), %xmm2
  movaps 112(%rsp), %xmm3
  movaps 128(%rsp), %xmm4
  movaps 144(%rsp), %xmm5
  movaps 160(%rsp), %xmm6
  movaps 176(%rsp), %xmm7
  mov 192(%rsp), %r11
  add $(kFrame + 8), %rsp
  .cfi_adjust_cfa_offset -(kFrame + 8)
  jmp *%r11
  .cfi_endproc
  .size TidemarkHookCommon, . - TidemarkHookCommon

  .p2align 4
  .globl TidemarkThunks
  .hidden TidemarkThunks
  .type TidemarkThunks, @function
TidemarkThunks:
  .set index, 0
  .rept kThunkCount
  .p2align 4
  .cfi_startproc
  endbr64
  push $index
  .cfi_adjust_cfa_offset 8
  jmp TidemarkHookCommon
  .cfi_endproc
  .set index, index + 1
  .endr
  .size TidemarkThunks, . - TidemarkThunks

  .globl TidemarkThunkCount
  .hidden TidemarkThunkCount
  .section .rodata
  .p2align 3
TidemarkThunkCount:
  .quad kThunkCount

  .section .note.GNU-stack, "", @progbits
