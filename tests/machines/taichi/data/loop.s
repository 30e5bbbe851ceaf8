
.LBB0_1:
	movss	(%rax), %xmm0
	mulss	%xmm1, %xmm0
	jne	.LBB0_1
.LBB0_2:
	vmovups	(%rax), %zmm0
	vfmadd231ps	(%rbx), %zmm1, %zmm0
	vmulps	%ymm1, %ymm2, %ymm3
	jne	.LBB0_2
	mulps	%xmm1, %xmm0
	ret
